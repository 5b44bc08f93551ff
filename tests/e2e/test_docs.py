"""Every command and program in README.md, CONTRIBUTING.md and docs/ is run, page by page, as a reader would.

A page's blocks of sh and python run from top to bottom in an empty directory, with one broker: the one that the
page starts, or else one that is there already. A comment on the line before a block says what is special about it:

    <!-- not run: reason -->      for people only, and why
    <!-- fails: 3 -->             exits with that code
    <!-- background -->           goes on while the rest of the page runs
    <!-- file: name -->           is the content of a file, of any language
    <!-- output -->               what the block before it printed; `...` stands for anything

Pages say 127.0.0.1:9092 (9093, 9094) and localhost:9644; the run has other ports, put into the text and the
environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headrace.testing import Broker
from headrace.testing.process import free_port
from tests.spark.surroundings import surroundings

ROOT = Path(__file__).resolve().parents[2]
ADMIN_PORT_DISTANCE = 552
PORTS = 3
"""Of the brokers that a page starts with `--workers 3`."""
HIGHEST_PORT = 2**16 - 1 - ADMIN_PORT_DISTANCE
BLOCK = re.compile(r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
RUN = ("sh", "python")
MARKS = re.compile(r"not run: .{8,}|fails: \d+|background|file: [\w.]+|output")
TIMEOUT_S = 900.0
"""Of one block: those that start Spark take some ten seconds on a free machine."""


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    mark: str
    line: int

    @property
    def runs(self) -> bool:
        return self.language in RUN and not self.mark.startswith(("not run", "file"))


def blocks(text: str) -> list[Block]:
    return [
        Block(match["language"], match["text"], match["mark"] or "", text.count("\n", 0, match.start()) + 1)
        for match in BLOCK.finditer(text)
    ]


def documents() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md"))
    yield from sorted((ROOT / "docs").glob("*.md"))


PAGES = [path for path in documents() if any(block.runs for block in blocks(path.read_text()))]


def ports_in_a_row(count: int) -> int:
    """The first of so many free ports, none of which is given to another test of this process."""
    ports = [free_port() for _ in range(count)]
    while ports[-1] - ports[0] != count - 1 or ports[-1] > HIGHEST_PORT:
        ports = [*ports[1:], free_port()]
    return ports[0]


class Reader:
    """Somebody who does what a page says."""

    def __init__(self, directory: Path, surroundings: Mapping[str, str]) -> None:
        self.directory = directory
        self._surroundings = surroundings
        self.port = ports_in_a_row(PORTS)
        self._background: list[subprocess.Popen[str]] = []
        self.output = ""
        self._listeners = {"HEADRACE_LISTENERS": f"PLAINTEXT://{self.address}"}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def here(self, text: str) -> str:
        """A page's text with the ports of this run."""
        for index in range(PORTS):
            address = f"127.0.0.1:{self.port + index}"
            text = re.sub(rf"\b(?:127\.0\.0\.1|localhost):{9092 + index}\b", address, text)
        text = re.sub(r"\blocalhost:9644\b", f"localhost:{self.port + ADMIN_PORT_DISTANCE}", text)
        return text.replace(".venv/bin/", "")

    def do_all(self, page: list[Block]) -> None:
        if any(re.search(r"^listeners=", block.text, re.M) for block in page if block.runs):
            self._listeners = {}  # the page says so itself
        for block in page:
            self.do(block)

    def do(self, block: Block) -> None:
        if block.mark == "output":
            self._compare(block)
        elif block.mark.startswith("file: "):
            (self.directory / block.mark.removeprefix("file: ")).write_text(self.here(block.text))
        elif block.mark == "background":
            self._background.append(self._start(block))
            self._wait_for_broker()
        elif block.runs:
            self._run(block)

    def _run(self, block: Block) -> None:
        expected = int(block.mark.removeprefix("fails: ")) if block.mark else 0
        process = self._start(block)
        try:
            self.output, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
        assert process.returncode == expected, f"line {block.line}: {process.returncode}\n{self.output}"
        assert "Traceback" not in self.output, f"line {block.line}\n{self.output}"

    def _start(self, block: Block) -> subprocess.Popen[str]:
        shell = ["bash", "-euo", "pipefail", "-c"]
        command = [*(shell if block.language == "sh" else [sys.executable, "-c"]), self.here(block.text)]
        return subprocess.Popen(
            command,
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **self._surroundings,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HEADRACE_STATE_DIR": str(self.directory / "state"),
            **self._listeners,
            "HEADRACE_BOOTSTRAP_SERVERS": self.address,
            "HEADRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",  # nobody else is coming
        }

    def _compare(self, block: Block) -> None:
        def words(text: str) -> str:
            return " ".join(text.split())

        pattern = re.sub(r"(\\ )?\\\.\\\.\\\.(\\ )?", ".*", re.escape(words(self.here(block.text))))
        assert re.fullmatch(pattern, words(self.output), re.DOTALL), (
            f"line {block.line}: the page shows\n{block.text}\nand it printed\n{self.output}"
        )

    def _wait_for_broker(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("the broker in the background does not listen")

    def leave(self) -> None:
        for process in self._background:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for file in [*self.directory.rglob("headrace.supervisor"), *self.directory.rglob("headrace.pid")]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.fixture(scope="module")
def spark_surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Spark as the other tests start it: the pages do so a dozen times."""
    return surroundings(tmp_path_factory.mktemp("python"))


@pytest.fixture
def reader(tmp_path: Path, spark_surroundings: dict[str, str]) -> Iterator[Reader]:
    reader = Reader(tmp_path, spark_surroundings)
    yield reader
    reader.leave()


def starts_its_own(page: list[Block]) -> bool:
    return any(
        block.runs and not block.mark.startswith("fails") and re.search(r"^\S*headrace start\b", block.text, re.M)
        for block in page
    )


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_a_page_says_works(path: Path, reader: Reader) -> None:
    page = blocks(path.read_text())
    if starts_its_own(page):
        reader.do_all(page)
        return
    admin_port = str(reader.port + ADMIN_PORT_DISTANCE)
    with Broker({"listeners": f"PLAINTEXT://{reader.address}", "headrace.admin.port": admin_port}):
        reader.do_all(page)


def test_every_mark_is_one_that_counts() -> None:
    wrong = [
        f"{path.name}:{block.line}: {block.mark}"
        for path in documents()
        for block in blocks(path.read_text())
        if block.mark and not block.mark.startswith("diagram: ") and not MARKS.fullmatch(block.mark)
    ]
    assert not wrong


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{path.name}: {target}"
        for path in documents()
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert not broken


def test_pictures_are_whole() -> None:
    pictures = list((ROOT / "docs" / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        elements = ElementTree.parse(picture).getroot()
        assert len(elements) > 5, picture.name
        for one in elements:  # columns and bars that would shift in a proportional font
            assert not re.search(r"  |[\u2581-\u2588]", one.text or ""), f"{picture.name}: {one.text!r}"
        assert not re.search(r"/(?:tmp|home|root|work)/", picture.read_text()), f"{picture.name}: a machine's path"


def test_a_reader_notices_what_is_wrong(reader: Reader) -> None:
    for wrong in (
        "```sh\nheadrace topic lst\n```",
        "<!-- fails: 3 -->\n```sh\ntrue\n```",
        "```sh\nfalse | true\n```",
        "```sh\necho one\n```\n<!-- output -->\n```text\ntwo ...\n```",
        "```python\nimport nothing_such\n```",
    ):
        with pytest.raises(AssertionError):
            reader.do_all(blocks(wrong))
    reader.do_all(blocks("```sh\necho one two\n```\n<!-- output -->\n```text\none ...\n```"))

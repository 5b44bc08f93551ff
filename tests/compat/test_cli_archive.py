"""`headrace archive` and `headrace replay` as commands, killed while they run (R-BEY-3)."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.test_cli import Cli, cli, launch, refused, run
from tests.spark.topics import Topics

__all__ = ["cli"]

WAIT_S = 120
RECORDS = 40_000


@pytest.fixture(scope="module")
def filled(bootstrap: str) -> str:
    topics = Topics(bootstrap)
    name = topics.create(unique_name("archived"), 2, {"retention.ms": "-1"})
    numbers = range(RECORDS)
    topics.send(name, [b"%06d" % one * 20 for one in numbers], keys=[f"k{one % 1000}" for one in numbers])
    return name


def killed_once(command: subprocess.Popen[bytes], begun: Callable[[], bool]) -> None:
    """With SIGKILL, as soon as something has happened; it may have ended by itself before."""
    deadline = time.monotonic() + WAIT_S
    while not begun() and command.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    command.send_signal(signal.SIGKILL)
    command.communicate(timeout=WAIT_S)


def test_killed_and_run_again(bootstrap: str, cli: Cli, filled: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "archive")
    cli("archive", "create", folder, filled, "--file-size", "1MB")
    commits = tmp_path / "archive" / "_headrace" / "log"
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    killed_once(launch(bootstrap, "archive", "run", folder, **quiet), lambda: commits.exists())
    cli("archive", "run", folder)
    checked = json.loads(cli("archive", "verify", folder, "--format", "json"))
    assert (checked["rows"], checked["compared"], checked["problems"]) == (RECORDS, RECORDS, [])
    rows = json.loads(cli("archive", "status", folder, "--format", "json"))
    assert [(row["start"], row["lag"], row["lost"]) for row in rows] == [(0, 0, 0)] * 2

    topics, copy = Topics(bootstrap), unique_name("copy")
    topics.create(copy, 2, {"retention.ms": "-1"})
    replay = ("replay", folder, filled, copy, "--original-offsets")
    killed_once(launch(bootstrap, *replay, **quiet), lambda: topics.ends(copy)[1] > 0)
    cli(*replay)
    before, after = topics.read(filled, range(2)), topics.read(copy, range(2))
    assert [(one.partition, one.key, one.value, one.timestamp_ms) for one in after] == [
        (one.partition, one.key, one.value, one.timestamp_ms) for one in before
    ]
    assert [one.headers for one in after] == [(("headrace.offset", str(one.offset).encode()),) for one in before]
    again = run(bootstrap, *replay)
    assert (again.returncode, b"nothing was written" in again.stderr) == (0, True)


def test_a_slice_and_what_is_wrong(bootstrap: str, cli: Cli, make_topic: MakeTopic, tmp_path: Path) -> None:
    name, folder = make_topic(1), str(tmp_path / "a")
    refused(bootstrap, 4, "There is no archive in", "archive", "run", folder)
    refused(bootstrap, 4, "There is no topic nothing", "archive", "create", folder, "nothing")
    cli("archive", "create", folder, name)
    cli("topic", "produce", name, '{"total": 5}', '{"total": 500}', "text")
    cli("archive", "run", folder)
    copy = unique_name("slice")
    counted = run(bootstrap, "replay", folder, name, copy, "--where", "value.total>100", "--dry-run")
    assert counted.stderr.decode() == f"1 record would go to {copy}.\n"
    cli("replay", folder, name, copy, "--where", "value.total>100")
    assert [one.value for one in Topics(bootstrap).read(copy)] == [b'{"total": 500}']
    refused(bootstrap, 2, "started again", "replay", folder, name, copy, "--from", "-2h")

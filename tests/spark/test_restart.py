"""R-SPK-1: a driver killed at every stage of a batch and started again: what a restart reads and writes.

Four queries, each with one checkpoint and one death per run, so that each restart has what the one before left
behind. Those that count begin at `latest`, and what they are to read arrives after they have asked where that is:
asking again would lose all of it. All die together, for a start of Spark takes longer than their work.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.spark.restart_driver import COPY_PARTITIONS, NEW, PER_COPY
from tests.spark.topics import Stored, Topics

DRIVER = Path(__file__).with_name("restart_driver.py")
RUNS = (
    "early:plan,late:read,last:commit,copy:write",
    "early:offsets,late:sink,copy:done",
    "early:end,late:end,last:end,copy:end",
)
COUNTING = ("early", "late", "last")
OLD = 50
RUN_TIMEOUT_S = 600

pytestmark = [pytest.mark.slow, pytest.mark.timeout(len(RUNS) * RUN_TIMEOUT_S)]


class Survived(NamedTuple):
    """What is left of all the runs."""

    folder: Path
    copied: list[list[Stored]]
    """By partition."""


@pytest.fixture(scope="module")
def survived(java: str, topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survived]:
    folder = tmp_path_factory.mktemp("restarts")
    topic, copy = topics.create(partitions=2), topics.create(partitions=COPY_PARTITIONS)
    topics.send(topic, ["old"] * OLD, partition=0)
    for stages in RUNS:
        run_until_killed(topics, [topic, copy], folder, stages)
    yield Survived(folder, [topics.read(copy, [partition]) for partition in range(COPY_PARTITIONS)])
    topics.delete([topic, copy])


def run_until_killed(topics: Topics, names: list[str], folder: Path, stages: str) -> None:
    log = folder / f"{stages}.log"
    command = [sys.executable, str(DRIVER), topics.bootstrap, *names, str(folder), stages]
    with log.open("wb") as out:
        run = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        if stages == RUNS[0]:
            for query in COUNTING:
                wait_for(folder / f"started-{query}", run, log)
            for partition in range(2):
                topics.send(names[0], [f"new {number}" for number in range(NEW)], partition=partition)
            (folder / "filled").touch()
        code = run.wait(RUN_TIMEOUT_S)
    finally:
        end(run)
    assert code == (0 if stages == RUNS[-1] else -signal.SIGKILL), log.read_text()


def wait_for(path: Path, run: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while not path.exists():
        assert run.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def end(run: subprocess.Popen[bytes]) -> None:
    """Also what a failed test leaves behind: Java is in the driver's process group."""
    try:
        os.killpg(run.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    run.wait()


@pytest.mark.parametrize("query", COUNTING)
def test_no_row_is_lost_and_none_is_counted_twice(survived: Survived, query: str) -> None:
    *_, last = sorted((survived.folder / query).glob("batch-*.json"))
    sums = [sum(range(OLD, OLD + NEW)), sum(range(NEW))]
    assert json.loads(last.read_text()) == {"0": [NEW, sums[0]], "1": [NEW, sums[1]]}


def test_what_is_written_again_is_a_whole_batch(survived: Survived) -> None:
    """At least once: no row is lost, and each batch that is repeated begins from its first row.

    The second batch was begun, then written but not committed, then written and committed.
    """
    total = OLD + NEW
    batches = [range(first, min(first + PER_COPY, total)) for first in range(0, total, PER_COPY)]
    begun_rows = 0
    homes = [{int(record.key or b"") for record in records} for records in survived.copied]
    assert homes[0] | homes[1] == set(range(total)), "every row is there"
    assert not homes[0] & homes[1], "a row that comes again goes to the same partition"
    for home, records in zip(homes, survived.copied, strict=True):
        first, second, third = ([number for number in batch if number in home] for batch in batches)
        found = [int(record.key or b"") for record in records]
        begun = found[len(first) : len(found) - len(second) * 2 - len(third)]
        assert begun == second[: len(begun)]
        assert found == first + begun + second + second + third
        begun_rows += len(begun)
    assert 0 < begun_rows < PER_COPY, "it was killed while it wrote"

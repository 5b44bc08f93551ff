"""R-SPK-1: a driver killed at every stage of a batch and started again loses no row and counts none twice.

One query, one checkpoint, one death per run: each restart has what the one before left behind. It starts at
`latest`, and what it is to read arrives after it has asked where that is: asking again would lose all of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.conftest import MakeTopic
from tests.spark.topics import Topics

DRIVER = Path(__file__).with_name("source_restart_driver.py")
STAGES = ("plan", "offsets", "read", "sink", "commit", "none")
OLD, NEW = 50, 500
RUN_TIMEOUT_S = 150


def start(bootstrap: str, topic: str, folder: Path, stage: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(DRIVER), bootstrap, topic, str(folder), stage, str(2 * NEW)]
    with (folder / f"{stage}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


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


@pytest.mark.slow
@pytest.mark.timeout(len(STAGES) * RUN_TIMEOUT_S)
def test_a_driver_killed_at_every_stage(
    java: str, bootstrap: str, topics: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    topics.send(topic, ["old"] * OLD, partition=0)
    for stage in STAGES:
        run = start(bootstrap, topic, tmp_path, stage)
        log = tmp_path / f"{stage}.log"
        try:
            if stage == STAGES[0]:
                wait_for(tmp_path / "started", run, log)
                for partition in range(2):
                    topics.send(topic, ["new"] * NEW, partition=partition)
                (tmp_path / "filled").touch()
            code = run.wait(RUN_TIMEOUT_S)
        finally:
            end(run)
        if stage == "none":
            assert code == 0, log.read_text()
        else:
            assert (tmp_path / f"died-{stage}").exists(), log.read_text()
            assert code == -signal.SIGKILL

    *_, last = sorted(tmp_path.glob("batch-*.json"))
    sums = [sum(range(OLD, OLD + NEW)), sum(range(NEW))]
    assert json.loads(last.read_text()) == {"0": [NEW, sums[0]], "1": [NEW, sums[1]]}

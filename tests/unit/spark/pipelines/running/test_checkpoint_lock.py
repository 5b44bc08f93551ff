"""Two runs cannot use one checkpoint at a time, whatever else they have of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.pipelines.running.checkpoint_lock import CheckpointInUse, CheckpointLock
from headrace.spark.pipelines.running.run_files import STATE_VARIABLE

HOLDER = """
import sys
from headrace.spark.pipelines.running.checkpoint_lock import CheckpointLock
with CheckpointLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))


@pytest.mark.parametrize("directory", ["{0}/new/a", "file:{0}/new/a", "file://{0}/new%20one/a", "s3a://bucket/a"])
def test_one_at_a_time(tmp_path: Path, directory: str) -> None:
    place = directory.format(tmp_path)
    in_use = pytest.raises(CheckpointInUse, match=f"in use by process {os.getpid()} on ")
    with CheckpointLock(place), CheckpointLock(f"{place}2"), in_use, CheckpointLock(place):
        pytest.fail("locked twice")
    with CheckpointLock(place):
        pass
    assert (tmp_path / "state").exists() == ("s3a" in directory)


def test_it_ends_with_the_process(tmp_path: Path) -> None:
    line = [sys.executable, "-c", HOLDER, str(tmp_path / "ck")]
    holder = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(CheckpointInUse, match=f"process {holder.pid} "), CheckpointLock(str(tmp_path / "ck")):
        pytest.fail("locked twice")
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with CheckpointLock(str(tmp_path / "ck")):
        pass


def test_a_directory_that_cannot_be_written_is_locked_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = f"{tmp_path}/file/a"
    with CheckpointLock(place), pytest.raises(CheckpointInUse), CheckpointLock(place):
        pytest.fail("locked twice")

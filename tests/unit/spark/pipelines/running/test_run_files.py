"""Finding a running pipeline, and what is left of one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.pipelines.running.run_files import (
    STATE_VARIABLE,
    AlreadyRuns,
    Claim,
    known_pipelines,
    run_files,
    sharers,
)

HOLDER = """
import os, sys
from headrace.spark.pipelines.running.run_files import Claim, run_files
with Claim(run_files("logs")) as files:
    files.write({"pid": os.getpid(), "state": "running"})
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))


def test_a_pipeline_runs_once_at_a_time() -> None:
    with Claim(run_files("logs")) as files:
        files.write({"pid": 12})
        assert files.runs()
        with pytest.raises(AlreadyRuns, match="process 12"), Claim(run_files("logs")):
            pytest.fail("claimed twice")
    assert not run_files("logs").runs()
    with Claim(run_files("logs")):
        pass


def test_a_killed_pipeline_leaves_nothing_that_must_be_cleaned_up() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    files = run_files("logs")
    assert files.runs()
    assert files.read()["pid"] == holder.pid
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    assert not files.runs()
    assert files.read()["state"] == "running"  # what the list shows as killed
    with Claim(files):
        pass


def test_a_request_to_stop_does_not_outlive_the_run() -> None:
    with Claim(run_files("logs")) as files:
        files.stop_request.touch()
    assert not files.stop_request.exists()
    files.stop_request.touch()
    with Claim(run_files("logs")):
        assert not files.stop_request.exists()


def test_known_pipelines_are_those_that_have_run() -> None:
    assert known_pipelines() == []
    for name in ("b", "a"):
        with Claim(run_files(name)):
            pass
    assert [files.name for files in known_pipelines()] == ["a", "b"]


def test_the_state_directory_follows_the_usual_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STATE_VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert run_files("logs").directory == tmp_path / "xdg" / "headrace" / "pipelines" / "logs"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert run_files("logs").directory == tmp_path / "me" / ".local" / "state" / "headrace" / "pipelines" / "logs"


def test_half_a_file_is_no_news() -> None:
    with Claim(run_files("logs")) as files:
        (files.directory / "run.json").write_text('{"pid": 1')
        assert files.read() == {}


def test_who_else_kept_state_in_a_directory() -> None:
    for name, checkpoint, query in (("a", "/ck", "a.out"), ("b", "/ck/", "b.out"), ("c", "/ck/c", "c.out")):
        with Claim(run_files(name)) as files:
            files.write({"checkpoint": checkpoint, "queries": [{"query": query}]})
    with Claim(run_files("new")):
        pass
    assert sharers("/ck", "a") == {"b": frozenset({"out"})}

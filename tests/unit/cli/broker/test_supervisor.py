"""When a worker is restarted, and when it is given up."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from headrace.cli.broker import restarts
from headrace.cli.broker.restarts import DELAYS_S, MAX_FAILED_STARTS, STEADY_S, Restarts
from headrace.cli.broker.run_files import run_files
from headrace.cli.broker.supervisor import Supervisor, Worker


def test_delays_grow_and_begin_anew_after_a_steady_run() -> None:
    worker = Restarts()
    delays = []
    for _ in range(len(DELAYS_S) + 2):
        worker.ready(0.0)
        delays.append(worker.delay_after_end(1.0))
    assert delays == [*DELAYS_S, DELAYS_S[-1], DELAYS_S[-1]], "one that becomes ready is never given up"
    worker.ready(100.0)
    assert worker.delay_after_end(100.0 + STEADY_S) == DELAYS_S[0]


def test_failed_starts_in_a_row_are_too_many() -> None:
    worker = Restarts()
    worker.ready(0.0)
    assert worker.delay_after_end(1.0) is not None
    for _ in range(MAX_FAILED_STARTS - 1):
        assert worker.delay_after_end(2.0) is not None
    assert worker.delay_after_end(3.0) is None
    assert worker.failed_starts == MAX_FAILED_STARTS


def worker(data: Path, number: int, program: str) -> Worker:
    """A process in a broker's place: it counts its starts in `starts`."""
    files = run_files(str(data), number)
    count = f"starts = open({str(data / f'starts-{number}')!r}, 'a+'); starts.write('x'); starts.flush(); "
    head = f"import os, sys, time, pathlib; {count}starts.seek(0); start = len(starts.read()); "
    return Worker([sys.executable, "-c", head + program], files)


READY = "print('ready', flush=True); "


def test_the_others_go_on_when_one_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restarts, "DELAYS_S", (0.0,))
    last = MAX_FAILED_STARTS
    failing = worker(tmp_path, 1, "sys.exit(3)")
    failures = tmp_path / "starts-1"
    waiting = worker(
        tmp_path,
        2,
        f"{READY}p = pathlib.Path({str(failures)!r})\nwhile len(p.read_text()) < {last}: time.sleep(0.01)",
    )
    with caplog.at_level(logging.INFO):
        supervisor = Supervisor([failing, waiting], "data")
        supervisor._all_ready = True
        assert supervisor.run() == 1
    assert len(failures.read_text()) == last
    assert "Broker 1 ended with exit code 3; restarting it in 0 s" in caplog.text
    assert f"failed to start {MAX_FAILED_STARTS} times in a row; giving up" in caplog.text
    assert failing.files.supervisor() is None


def test_a_process_that_cannot_be_made_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restarts, "DELAYS_S", (0.0,))
    missing = Worker([str(tmp_path / "no-such-program")], run_files(str(tmp_path), 1))
    assert Supervisor([missing], "data").run() == 1
    assert "Broker 1 could not be started (No such file or directory)" in caplog.text
    assert f"failed to start {MAX_FAILED_STARTS} times in a row; giving up" in caplog.text


def test_a_refusal_at_the_first_start_ends_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    refusing = worker(tmp_path, 1, "sys.exit(1)")
    other = worker(tmp_path, 2, f"{READY}time.sleep(600)")
    assert Supervisor([refusing, other], "data").run() == 1
    assert len((tmp_path / "starts-1").read_text()) == 1
    assert "Broker 1 could not start" in caplog.text

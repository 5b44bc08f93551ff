"""A series of drills: one that cannot run fails or is named, and never passes for one that ran."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from headrace.testing.drills import __main__ as series
from headrace.testing.process import ServerFailed


def run(monkeypatch: pytest.MonkeyPatch, report: Path, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["drills", "--report", str(report), *arguments])
    return series.main()


def test_a_series_in_which_nothing_ran_has_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, "zookeeper-down", "--mode", "sqlite") == 1
    said = capsys.readouterr()
    assert "zookeeper-down (sqlite): not run: it needs ZooKeeper" in said.out
    assert "no drill was run" in said.err


def test_a_server_that_does_not_start_fails_its_drill_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(name: str, **_: object) -> None:
        raise ServerFailed(f"{name}: not ready in 120 s")

    monkeypatch.setattr(series, "run_drill", fails)
    assert run(monkeypatch, tmp_path, "kill-all", "kill-two", "--mode", "sqlite") == 1
    said = capsys.readouterr().out
    assert "kill-all (sqlite): FAILED: kill-all: not ready in 120 s" in said
    assert "kill-two (sqlite): FAILED: kill-two: not ready in 120 s" in said
    assert [one["passed"] for one in json.loads((tmp_path / "report.json").read_text())] == [False, False]

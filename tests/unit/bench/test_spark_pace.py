"""Spark's process asks before each run, and the benchmark understands it."""

from __future__ import annotations

import io

import pytest

from bench.spark_pace import asked_bytes, wait_until_ready


def test_what_one_side_asks_the_other_understands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("bench-7\n\n"))
    assert wait_until_ready(1024) == "bench-7"
    assert wait_until_ready(0) == "", "a read needs no topic"
    assert [asked_bytes(line) for line in capsys.readouterr().out.splitlines()] == [1024, 0]


def test_other_lines_are_no_questions() -> None:
    assert asked_bytes('[{"case": "write, 1 KB"}]\n') is None

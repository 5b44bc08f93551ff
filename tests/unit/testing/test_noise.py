"""Drills complain of tracebacks and of the same line again and again."""

from __future__ import annotations

from headrace.testing.drills.noise import MOST_OF_A_KIND, noise


def test_a_quiet_log() -> None:
    assert noise("2026-01-01 INFO started\n2026-01-01 WARNING broker 2 is away\n") == []


def test_a_traceback() -> None:
    text = (
        'ERROR failed\nTraceback (most recent call last):\n  File "a.py", line 1\n    a()\nKeyError: 1\nINFO on\n'
    )
    assert noise(text) == ["a traceback: KeyError: 1"]


def test_the_same_line_with_other_numbers() -> None:
    text = "".join(f"2026-01-01 WARNING broker 2 failed after {n} s\n" for n in range(MOST_OF_A_KIND + 1))
    assert noise(text) == [f"{MOST_OF_A_KIND + 1} lines like 'WARNING broker # failed after # s'"]
    assert noise(text.replace("WARNING", "INFO")) == []

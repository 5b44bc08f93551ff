"""Many runs of the simulation: those that do not end or whose process dies do not stop the others; progress."""

from __future__ import annotations

import io
import os
import re
import signal

import pytest

from headrace.testing.sim import many
from headrace.testing.sim.run import SeedResult


def run_seed(seed: int, **_: object) -> SeedResult:
    if seed == 1:
        while True:
            pass
    if seed == 2:
        os._exit(1)
    if seed == 30:
        os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()
    return SeedResult(seed, [])


def test_a_run_without_an_end_is_killed_and_counts_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "run_seed", run_seed)
    hung = list(many.outcomes([1], 1, most_seconds=1.0))
    assert [(outcome.seed, outcome.violations) for outcome, _ in hung] == [
        (1, ["the run did not come to an end and was killed"])
    ]


def test_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "run_seed", run_seed)
    found = {outcome.seed: outcome.violations for outcome, _ in many.outcomes(range(2, 6), 2)}
    assert found == {2: ["the process of the run died"], 3: [], 4: [], 5: []}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_how_far_the_runs_are_is_told_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(many, "SEEDS_PER_LINE", 2)
    tally = many.Tally(5)
    for seed in range(5):
        tally.add(SeedResult(seed, ["lost"] if seed == 1 else []), 1.0)
    tally.end(stopped=False)
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "2 of 5 seeds: 1 clean, 1 failed, 1.00 CPU s each",
        "4 of 5 seeds: 3 clean, 1 failed, 1.00 CPU s each",
    ]
    assert "seed 1: FAILED" in out
    assert "5 seeds, 4 clean, 1 failed: [1]" in out


def test_on_a_terminal_it_is_one_line() -> None:
    screen = Terminal()
    tally = many.Tally(2, screen)
    tally.add(SeedResult(1, []), 1.0)
    tally.add(SeedResult(2, []), 2.0)
    tally.end(stopped=False)
    shown = [line for line in re.split("\r|\x1b\\[K", screen.getvalue()) if line]
    assert shown == [
        "1 of 2 seeds: 1 clean, 0 failed, 1.00 CPU s each",
        "2 of 2 seeds: 2 clean, 0 failed, 1.50 CPU s each",
    ]


def test_a_signal_ends_the_runs_with_a_summary_of_what_was_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(many, "run_seed", run_seed)
    before = signal.getsignal(signal.SIGTERM)
    assert many._run_many(range(28, 60), 1) == 128 + signal.SIGTERM
    assert "2 seeds of 32, stopped, 2 clean, 0 failed: []" in capfd.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_that_arrives_while_a_run_is_forked_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python only reports what is raised in a callback of `fork`, and continues."""
    armed = [True]

    def interrupt() -> None:
        if armed:
            armed.clear()
            signal.raise_signal(signal.SIGTERM)

    os.register_at_fork(after_in_parent=interrupt)
    monkeypatch.setattr(many, "run_seed", run_seed)
    assert many._run_many(range(3, 9), 1) == 128 + signal.SIGTERM
    assert "seeds of 6, stopped" in capfd.readouterr().out

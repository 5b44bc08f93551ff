"""Runs of the simulation that do not end, or whose process dies, are told of and do not stop the others."""

from __future__ import annotations

import os

import pytest

from headrace.testing.sim import many
from headrace.testing.sim.run import Outcome


def run_seed(seed: int, **_: object) -> Outcome:
    if seed == 1:
        while True:
            pass
    if seed == 2:
        os._exit(1)
    return Outcome(seed, [])


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

"""What the growth workloads make of several turns."""

from __future__ import annotations

from bench.measure import Measurement
from bench.workloads.x3_growth_log_size import middle


def test_the_turn_of_median_cost_counts_with_the_errors_of_all() -> None:
    turns = [Measurement("x", {"cpu_us_per_request": cost}, errors) for cost, errors in ((9, 4), (1, 2), (5, 1))]
    found = middle(turns)
    assert found.figures == {"cpu_us_per_request": 5}
    assert found.errors == 7

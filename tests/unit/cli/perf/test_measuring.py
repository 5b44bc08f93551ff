"""Latencies as `perf` reports them."""

from __future__ import annotations

from headrace.cli.perf.measuring import latencies, percentile


def test_percentiles_are_values_that_occurred() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert [percentile(ordered, percent) for percent in (1, 50, 95, 99, 99.9, 100)] == [1, 50, 95, 99, 100, 100]
    assert percentile([7.0], 50) == percentile([7.0], 99.9) == 7.0


def test_milliseconds_under_stable_names() -> None:
    found = latencies([0.001, 0.003])
    assert found == {"mean_ms": 2.0, "p50_ms": 1.0, "p95_ms": 3.0, "p99_ms": 3.0, "p99_9_ms": 3.0, "max_ms": 3.0}
    assert latencies([]) == {}

"""Reading what Kafka's own tools print, as they printed it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.clients import (
    ClientResult,
    parse_consumer_performance,
    parse_end_to_end_latency,
    parse_producer_performance,
)

PRODUCED = """\
100000 records sent, 19980.0 records/sec (19.51 MB/sec), 3.3 ms avg latency, 310.0 ms max latency.
200000 records sent, 40000.00 records/sec (39.06 MB/sec), 2.50 ms avg latency, 310.00 ms max latency, 1 ms 50th, \
9 ms 95th, 40 ms 99th, 41 ms 99.9th.
"""
CONSUMED = """\
2026-01-01 10:00:00:000, 2026-01-01 10:00:04:000, 160.0, 40.0, 155000, 38750.0, 1500, 2500, 64.0, 62000.0
"""
END_TO_END = """\
0\t12.5
Avg latency: 0.9200 ms

Percentiles: 50th = 0, 99th = 5, 99.9th = 9
"""


def test_producer_performance() -> None:
    found = parse_producer_performance(PRODUCED)
    assert (found.records, found.seconds) == (200_000, 5.0)
    assert found.latency is not None
    assert (found.latency.p50_us, found.latency.p99_us, found.latency.max_us) == (1000, 40_000, 310_000)


def test_consumer_performance_counts_what_is_missing() -> None:
    found = parse_consumer_performance(CONSUMED, 160_000)
    assert (found.records, found.seconds, found.errors) == (155_000, 2.5, 5_000)


def test_end_to_end_latency() -> None:
    found = parse_end_to_end_latency(END_TO_END, 1000)
    assert found.latency is not None
    assert (found.latency.p50_us, found.latency.p99_us, found.latency.p999_us) == (920, 5000, 9000)


@pytest.mark.parametrize("parse", [parse_producer_performance, lambda text: parse_end_to_end_latency(text, 1)])
def test_no_summary_is_a_failure(parse: Callable[[str], ClientResult]) -> None:
    with pytest.raises(ValueError, match="printed no summary"):
        parse("Exception in thread main")

"""How much one batch takes (R-SPK-1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.topics import TopicPartition
from headrace.spark.source.rate_limit import RateLimits, available_offsets, limit_batch, must_wait, pro_rata

NOBODY_WAITS = RateLimits()


def offsets(*values: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): value for number, value in enumerate(values)}


@pytest.mark.parametrize(
    ("limit", "start", "end", "expected"),
    [
        # In proportion to what is there, rounded down.
        (10, (0, 0), (100, 300), (2, 7)),
        (400, (0, 0), (100, 300), (100, 300)),
        (1000, (0, 0), (100, 300), (100, 300)),
        # A share below one is one.
        (10, (0, 0, 0), (1, 1000, 0), (1, 9, 0)),
        (1, (5, 5), (10, 10), (6, 6)),
        # Partitions with nothing new stay, also when their end seems to lie before the start.
        (3, (7, 0), (7, 9), (7, 3)),
        (3, (7, 0), (4, 9), (7, 3)),
        (3, (7, 2), (7, 2), (7, 2)),
        # Far up in the log.
        (10, (2**62, 0), (2**62 + 100, 0), (2**62 + 10, 0)),
    ],
)
def test_offsets_are_shared_out_by_what_each_partition_has(
    limit: int, start: tuple[int, ...], end: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert pro_rata(limit, offsets(*start), offsets(*end)) == offsets(*expected)


@pytest.mark.parametrize(
    ("available", "elapsed_ms", "waits"),
    [
        (9, 0, True),
        (9, 59_999, True),
        (9, 60_000, False),
        (10, 0, False),
        (0, 1000, True),
        (0, 60_000, False),
    ],
)
def test_waits_for_enough_or_until_the_delay_is_over(available: int, elapsed_ms: int, waits: bool) -> None:
    limits = RateLimits(min_offsets=10, max_trigger_delay_ms=60_000)
    assert must_wait(limits, available, last_trigger_ms=5000, now_ms=5000 + elapsed_ms) is waits


def test_the_first_batch_of_a_run_does_not_wait() -> None:
    assert not must_wait(RateLimits(min_offsets=10), 1, last_trigger_ms=None, now_ms=0)


def test_without_a_minimum_nothing_waits() -> None:
    assert not must_wait(NOBODY_WAITS, 0, last_trigger_ms=0, now_ms=0)


def test_a_batch_that_waits_has_no_ends() -> None:
    limits = RateLimits(min_offsets=10, max_offsets=20)
    assert limit_batch(limits, offsets(0), offsets(9), last_trigger_ms=0, now_ms=1) is None
    assert limit_batch(limits, offsets(0), offsets(50), last_trigger_ms=0, now_ms=1) == offsets(20)


def test_without_limits_a_batch_takes_everything() -> None:
    taken = limit_batch(NOBODY_WAITS, offsets(0, 5), offsets(9, 3), last_trigger_ms=None, now_ms=0)
    assert taken == offsets(9, 5)


def test_bytes_are_shared_out_by_estimated_size() -> None:
    limits = RateLimits(max_bytes=1000)
    known = {TopicPartition("t", 0): 10.0, TopicPartition("t", 1): 90.0}
    taken = limit_batch(
        limits, offsets(0, 0), offsets(100, 100), last_trigger_ms=None, now_ms=0, record_bytes=known
    )
    assert taken == offsets(10, 10)


def test_bytes_without_an_estimate_count_a_kilobyte_each() -> None:
    taken = limit_batch(RateLimits(max_bytes=10 * 1024), offsets(0), offsets(100), last_trigger_ms=None, now_ms=0)
    assert taken == offsets(10)


def test_a_record_larger_than_the_limit_is_read_all_the_same() -> None:
    known = {TopicPartition("t", 0): 5000.0}
    taken = limit_batch(
        RateLimits(max_bytes=100), offsets(3), offsets(9), last_trigger_ms=None, now_ms=0, record_bytes=known
    )
    assert taken == offsets(4)


def test_the_narrower_of_both_limits_holds() -> None:
    known = {TopicPartition("t", 0): 100.0}
    for max_offsets, expected in ((5, 5), (50, 10)):
        limits = RateLimits(max_offsets=max_offsets, max_bytes=1000)
        taken = limit_batch(limits, offsets(0), offsets(99), last_trigger_ms=None, now_ms=0, record_bytes=known)
        assert taken == offsets(expected)


@given(
    spans=st.lists(st.tuples(st.integers(0, 2**40), st.integers(-5, 10**6)), min_size=1, max_size=8),
    max_offsets=st.none() | st.integers(1, 10**6),
    max_bytes=st.none() | st.integers(1, 10**9),
)
def test_batches_stay_in_bounds_and_always_move(
    spans: list[tuple[int, int]], max_offsets: int | None, max_bytes: int | None
) -> None:
    start = offsets(*(begin for begin, _ in spans))
    end = offsets(*(begin + size for begin, size in spans))
    limits = RateLimits(max_offsets=max_offsets, max_bytes=max_bytes)
    taken = limit_batch(limits, start, end, last_trigger_ms=None, now_ms=0)
    assert taken is not None
    assert all(start[one] <= taken[one] <= max(end[one], start[one]) for one in end)
    assert (available_offsets(start, taken) > 0) == (available_offsets(start, end) > 0)
    if max_offsets is not None:
        assert available_offsets(start, taken) < max_offsets + len(spans)

"""Which offsets each task reads (R-SPK-1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.topics import TopicPartition
from headrace.spark.source.ranges import (
    MAX_TASKS_BY_SIZE,
    OffsetRange,
    Splitting,
    divide,
    ranges_between,
    split_ranges,
)

BY_COUNT = Splitting(target_bytes=None)


def whole(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("t", partition), "id", start, end)


def shown(tasks: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(task.partition.partition, task.start, task.end) for task in tasks]


def test_ranges_are_sorted_and_hold_only_partitions_with_something_new() -> None:
    t0, t2, t10, u0 = (
        TopicPartition("t", 0),
        TopicPartition("t", 2),
        TopicPartition("t", 10),
        TopicPartition("u", 0),
    )
    start = {t10: 0, t2: 5, t0: 7, u0: 3, TopicPartition("gone", 0): 1}
    end = {u0: 4, t0: 7, t2: 6, t10: 1, TopicPartition("unknown", 0): 9}
    assert ranges_between(start, end, {"t": "T"}) == [
        OffsetRange(t2, "T", 5, 6),
        OffsetRange(t10, "T", 0, 1),
        OffsetRange(u0, "", 3, 4),
    ]


def test_a_range_that_ends_before_it_starts_is_nothing_to_read() -> None:
    partition = TopicPartition("t", 0)
    assert ranges_between({partition: 9}, {partition: 4}, {}) == []


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (1, [(0, 0, 10)]),
        (3, [(0, 0, 3), (0, 3, 6), (0, 6, 10)]),
        (4, [(0, 0, 2), (0, 2, 4), (0, 4, 7), (0, 7, 10)]),
        (10, [(0, n, n + 1) for n in range(10)]),
        (25, [(0, n, n + 1) for n in range(10)]),
    ],
)
def test_dividing_rounds_down_and_the_last_parts_take_the_rest(
    parts: int, expected: list[tuple[int, int, int]]
) -> None:
    assert shown(list(divide(whole(0, 0, 10), parts))) == expected


@pytest.mark.parametrize(
    ("ranges", "count", "expected"),
    [
        # Enough partitions: one task each.
        ([whole(0, 0, 10), whole(1, 0, 99)], 2, [(0, 0, 10), (1, 0, 99)]),
        # One partition in so many parts.
        ([whole(0, 0, 100)], 3, [(0, 0, 33), (0, 33, 66), (0, 66, 100)]),
        # In proportion to size.
        ([whole(0, 0, 100), whole(1, 0, 300)], 4, [(0, 0, 100), (1, 0, 100), (1, 100, 200), (1, 200, 300)]),
        # Small ones stay whole; the large one gets what is left of the count, 3 and not round(99/101*5) parts.
        (
            [whole(0, 0, 1), whole(1, 0, 99), whole(2, 0, 1)],
            5,
            [(0, 0, 1), (1, 0, 33), (1, 33, 66), (1, 66, 99), (2, 0, 1)],
        ),
        # Half a part rounds up: 1.5 to two, 2.5 to three.
        (
            [whole(0, 0, 15), whole(1, 0, 25)],
            4,
            [(0, 0, 7), (0, 7, 15), (1, 0, 8), (1, 8, 16), (1, 16, 25)],
        ),
        # Never more tasks than offsets, and no empty ones.
        ([whole(0, 5, 7), whole(1, 3, 3)], 10, [(0, 5, 6), (0, 6, 7)]),
    ],
)
def test_min_partitions_splits_large_ranges_in_proportion(
    ranges: list[OffsetRange], count: int, expected: list[tuple[int, int, int]]
) -> None:
    assert shown(split_ranges(ranges, Splitting(min_partitions=count, target_bytes=None))) == expected


def test_max_records_splits_evenly_and_not_at_the_limit() -> None:
    tasks = split_ranges([whole(0, 0, 10), whole(1, 0, 4)], Splitting(max_records=4, target_bytes=None))
    assert shown(tasks) == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 4)]


def test_min_partitions_splits_on_after_max_records() -> None:
    splitting = Splitting(min_partitions=4, max_records=50, target_bytes=None)
    assert shown(split_ranges([whole(0, 0, 100)], splitting)) == [
        (0, 0, 25),
        (0, 25, 50),
        (0, 50, 75),
        (0, 75, 100),
    ]


def test_without_a_rule_every_partition_is_a_task() -> None:
    assert shown(split_ranges([whole(1, 0, 9), whole(0, 0, 10**12)], BY_COUNT)) == [(0, 0, 10**12), (1, 0, 9)]


def test_size_splits_only_where_it_is_known() -> None:
    ranges = [whole(0, 0, 1000), whole(1, 0, 1000)]
    splitting = Splitting(target_bytes=30_000)
    assert shown(split_ranges(ranges, splitting, {TopicPartition("t", 1): 100.0})) == [
        (0, 0, 1000),
        (1, 0, 250),
        (1, 250, 500),
        (1, 500, 750),
        (1, 750, 1000),
    ]
    assert len(split_ranges(ranges, splitting)) == 2


def test_size_makes_tasks_larger_before_it_makes_too_many() -> None:
    ranges = [whole(0, 0, 10**9)]
    tasks = split_ranges(ranges, Splitting(target_bytes=1), {TopicPartition("t", 0): 10.0})
    assert len(tasks) == MAX_TASKS_BY_SIZE


limits = st.none() | st.integers(1, 60)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500)), min_size=1, max_size=6),
    min_partitions=limits,
    max_records=limits,
    target_bytes=limits,
    record_bytes=st.floats(0.01, 50),
)
def test_every_offset_is_in_exactly_one_task_and_tasks_are_in_order(
    sizes: list[tuple[int, int]],
    min_partitions: int | None,
    max_records: int | None,
    target_bytes: int | None,
    record_bytes: float,
) -> None:
    ranges = [whole(number, start, start + size) for number, (start, size) in enumerate(sizes)]
    known = {one.partition: record_bytes for one in ranges}
    tasks = split_ranges(reversed(ranges), Splitting(min_partitions, max_records, target_bytes), known)
    read = [(task.partition, offset) for task in tasks for offset in range(task.start, task.end)]
    assert read == [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]
    assert all(task.size > 0 for task in tasks)
    if max_records is not None:
        assert all(task.size <= max_records for task in tasks)

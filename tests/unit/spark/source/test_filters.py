"""What pushed-down filters leave to read (R-SPK-1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql import datasource as spark

from headrace.model.topics import TopicPartition
from headrace.spark.source.filters import NOTHING_PUSHED, Narrowing, narrow_ranges, read_filters
from headrace.spark.source.ranges import OffsetRange

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = 1_769_860_800_000
MICROSECOND = timedelta(microseconds=1)
TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], NOTHING_PUSHED),
        ([spark.EqualTo(TOPIC, "a")], Narrowing(topics=frozenset("a"))),
        ([spark.EqualNullSafe(TOPIC, "a")], Narrowing(topics=frozenset("a"))),
        ([spark.In(TOPIC, ("a", "b", None))], Narrowing(topics=frozenset("ab"))),
        ([spark.In(TOPIC, ("a", "b")), spark.EqualTo(TOPIC, "b")], Narrowing(topics=frozenset("b"))),
        ([spark.EqualTo(TOPIC, "a"), spark.EqualTo(TOPIC, "b")], Narrowing(topics=frozenset())),
        ([spark.EqualTo(PARTITION, 3)], Narrowing(partitions=frozenset({3}))),
        ([spark.In(PARTITION, (3, 4)), spark.In(PARTITION, (4, 5))], Narrowing(partitions=frozenset({4}))),
        ([spark.GreaterThan(PARTITION, 3)], Narrowing(first_partition=4)),
        ([spark.GreaterThanOrEqual(PARTITION, 3)], Narrowing(first_partition=3)),
        ([spark.LessThan(PARTITION, 3)], Narrowing(last_partition=2)),
        ([spark.LessThanOrEqual(PARTITION, 3)], Narrowing(last_partition=3)),
        ([spark.EqualTo(OFFSET, 7)], Narrowing(first_offset=7, last_offset=7)),
        ([spark.In(OFFSET, (9, 2, 5))], Narrowing(first_offset=2, last_offset=9)),
        ([spark.In(OFFSET, (None,))], Narrowing(first_offset=0, last_offset=-1)),
        ([spark.GreaterThan(OFFSET, 7), spark.GreaterThanOrEqual(OFFSET, 5)], Narrowing(first_offset=8)),
        ([spark.LessThan(OFFSET, 7), spark.LessThanOrEqual(OFFSET, 9)], Narrowing(last_offset=6)),
        ([spark.GreaterThanOrEqual(TIMESTAMP, NOON)], Narrowing(from_ms=NOON_MS)),
        ([spark.GreaterThanOrEqual(TIMESTAMP, NOON + MICROSECOND)], Narrowing(from_ms=NOON_MS + 1)),
        ([spark.GreaterThan(TIMESTAMP, NOON)], Narrowing(from_ms=NOON_MS + 1)),
        ([spark.GreaterThan(TIMESTAMP, NOON + MICROSECOND)], Narrowing(from_ms=NOON_MS + 1)),
        ([spark.GreaterThan(TIMESTAMP, NOON - MICROSECOND)], Narrowing(from_ms=NOON_MS)),
        ([spark.EqualTo(TIMESTAMP, NOON)], Narrowing(from_ms=NOON_MS)),
        ([spark.In(TIMESTAMP, (NOON + timedelta(hours=1), NOON))], Narrowing(from_ms=NOON_MS)),
        (
            [spark.EqualTo(TIMESTAMP, NOON.astimezone(timezone(timedelta(hours=5))))],
            Narrowing(from_ms=NOON_MS),
        ),
    ],
)
def test_what_filters_allow(filters: list[spark.Filter], expected: Narrowing) -> None:
    assert read_filters(filters) == expected


@pytest.mark.parametrize(
    "one",
    [
        spark.Not(spark.EqualTo(TOPIC, "a")),
        spark.IsNotNull(TOPIC),
        spark.StringStartsWith(TOPIC, "a"),
        spark.EqualTo(("value",), b"x"),
        spark.EqualTo(("headers", "key"), "x"),
        spark.GreaterThan(PARTITION, "3"),
        spark.LessThan(TIMESTAMP, NOON),
        spark.GreaterThan(TIMESTAMP, NOON.replace(tzinfo=None)),
        spark.GreaterThan(TIMESTAMP, datetime(1969, 1, 1, tzinfo=UTC)),
        object(),
    ],
)
def test_what_says_nothing_narrows_nothing(one: object) -> None:
    assert read_filters([one]) == NOTHING_PUSHED


def ranges(*triples: tuple[str, int, int, int]) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition(topic, number), "", start, end) for topic, number, start, end in triples]


ALL = ranges(("a", 0, 0, 100), ("a", 1, 50, 60), ("b", 0, 0, 10))


@pytest.mark.parametrize(
    ("narrowing", "left"),
    [
        (NOTHING_PUSHED, ALL),
        (Narrowing(topics=frozenset("b")), ranges(("b", 0, 0, 10))),
        (Narrowing(partitions=frozenset({1})), ranges(("a", 1, 50, 60))),
        (Narrowing(first_partition=1), ranges(("a", 1, 50, 60))),
        (Narrowing(last_partition=0), ranges(("a", 0, 0, 100), ("b", 0, 0, 10))),
        (Narrowing(first_offset=10, last_offset=50), ranges(("a", 0, 10, 51), ("a", 1, 50, 51))),
        (Narrowing(first_offset=0, last_offset=-1), []),
        (Narrowing(topics=frozenset()), []),
    ],
)
def test_ranges_are_cut_to_what_is_left(narrowing: Narrowing, left: list[OffsetRange]) -> None:
    assert narrow_ranges(narrowing, ALL, {}) == left


def test_time_moves_the_start_to_the_first_record_that_new() -> None:
    first = {TopicPartition("a", 0): 40, TopicPartition("a", 1): None}
    left = narrow_ranges(Narrowing(from_ms=NOON_MS), ALL, first)
    assert left == ranges(("a", 0, 40, 100), ("b", 0, 0, 10))

"""Which rows a batch query can skip, from the filters Spark pushes down.

Spark checks every filter again on the rows it gets, so narrowing may leave too much, never too little. What is
used:

- topic: equality and IN;
- partition: equality, IN and comparisons;
- offset: equality, IN and comparisons;
- timestamp: equality, IN, and lower bounds, through the first offset at or after a time. No upper bounds:
  producers may send timestamps out of order, and a record within the bound can follow one beyond it.

Filters are known by the name of their class, `attribute` (a tuple) and `value`, so that this needs no pyspark. All
given filters hold together; any other filter says nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from headrace.model.topics import TopicPartition
from headrace.spark.source.ranges import OffsetRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What the filters leave to read; None means no bound; both ends are inclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_partition: int | None = None
    last_partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    from_ms: int | None = None

    def keeps(self, partition: TopicPartition) -> bool:
        """Whether the partition can have such rows at all."""
        return (
            (self.topics is None or partition.topic in self.topics)
            and (self.partitions is None or partition.partition in self.partitions)
            and (self.first_partition is None or partition.partition >= self.first_partition)
            and (self.last_partition is None or partition.partition <= self.last_partition)
        )


NOTHING_PUSHED = Narrowing()


def read_filters(filters: Iterable[object]) -> Narrowing:
    """What pyspark's Filter objects allow; the reader gives all of them back to Spark."""
    narrowing = NOTHING_PUSHED
    for one in filters:
        attribute = getattr(one, "attribute", None)
        if isinstance(attribute, tuple) and len(attribute) == 1 and attribute[0] in _COLUMNS:
            narrowing = _COLUMNS[attribute[0]](narrowing, type(one).__name__, getattr(one, "value", None))
    return narrowing


def narrow_ranges(
    narrowing: Narrowing, ranges: Iterable[OffsetRange], first_in_time: Mapping[TopicPartition, int | None]
) -> list[OffsetRange]:
    """The ranges, or what is left of them, in the same order.

    first_in_time: the first offset at or after `from_ms` of each partition, None where no record is that new; a
    partition it lacks is not narrowed by time.
    """
    left: list[OffsetRange] = []
    for one in ranges:
        if not narrowing.keeps(one.partition):
            continue
        start, end = one.start, one.end
        if narrowing.first_offset is not None:
            start = max(start, narrowing.first_offset)
        if narrowing.last_offset is not None:
            end = min(end, narrowing.last_offset + 1)
        if narrowing.from_ms is not None and one.partition in first_in_time:
            in_time = first_in_time[one.partition]
            start = end if in_time is None else max(start, in_time)
        if start < end:
            left.append(replace(one, start=start, end=end))
    return left


def _on_topic(before: Narrowing, kind: str, value: object) -> Narrowing:
    values = _one_of(kind, value)
    if values is None:
        return before
    topics = frozenset(one for one in values if isinstance(one, str))
    return replace(before, topics=topics if before.topics is None else before.topics & topics)


def _on_partition(before: Narrowing, kind: str, value: object) -> Narrowing:
    values = _one_of(kind, value)
    if values is not None:
        numbers = frozenset(_numbers(values))
        return replace(before, partitions=numbers if before.partitions is None else before.partitions & numbers)
    low, high = _bounds(kind, value)
    return replace(
        before,
        first_partition=_higher(before.first_partition, low),
        last_partition=_lower(before.last_partition, high),
    )


def _on_offset(before: Narrowing, kind: str, value: object) -> Narrowing:
    values = _one_of(kind, value)
    if values is None:
        low, high = _bounds(kind, value)
    else:
        numbers = _numbers(values)
        low, high = (min(numbers), max(numbers)) if numbers else (0, -1)
    return replace(
        before, first_offset=_higher(before.first_offset, low), last_offset=_lower(before.last_offset, high)
    )


def _on_timestamp(before: Narrowing, kind: str, value: object) -> Narrowing:
    values = _one_of(kind, value)
    if values is None and kind in ("GreaterThan", "GreaterThanOrEqual"):
        values = (value,)
    moments = [one for one in values or () if isinstance(one, datetime) and one.tzinfo is not None]
    if not values or len(moments) != len(values):
        return before  # a time without a zone could mean another moment
    from_ms = _first_millisecond(min(moments), after=kind == "GreaterThan")
    if from_ms <= 0:
        return before  # the wire has other meanings for negative times
    return replace(before, from_ms=_higher(before.from_ms, from_ms))


_COLUMNS: Mapping[str, Callable[[Narrowing, str, object], Narrowing]] = {
    "topic": _on_topic,
    "partition": _on_partition,
    "offset": _on_offset,
    "timestamp": _on_timestamp,
}


def _one_of(kind: str, value: object) -> tuple[object, ...] | None:
    """The values a column must have one of; None when the filter is of another kind."""
    if kind in ("EqualTo", "EqualNullSafe"):
        return (value,)
    if kind == "In" and isinstance(value, tuple | list):
        return tuple(one for one in value if one is not None)  # nothing equals null
    return None


def _numbers(values: Iterable[object]) -> list[int]:
    return [one for one in values if isinstance(one, int) and not isinstance(one, bool)]


def _bounds(kind: str, value: object) -> tuple[int | None, int | None]:
    """The lowest and highest number a comparison allows."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None, None
    return {
        "GreaterThan": (value + 1, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (None, value - 1),
        "LessThanOrEqual": (None, value),
    }.get(kind, (None, None))


def _higher(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def _lower(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def _first_millisecond(moment: datetime, *, after: bool) -> int:
    """The first whole millisecond at the moment or later; strictly later with `after`."""
    since = moment - _EPOCH
    return since // _MILLISECOND + 1 if after else -(-since // _MILLISECOND)

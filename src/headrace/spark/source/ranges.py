"""Which offsets each task reads.

Every partition that has anything new is one range. Ranges are then cut into tasks:

- `maxRecordsPerPartition` cuts every range into equal parts of at most so many offsets;
- `minPartitions`, when there are fewer ranges than that, cuts the large ones in proportion to their size, and
  leaves those alone that would get one part anyway: both exactly as Spark's `kafka` format does;
- `targetBytesPerTask` cuts by estimated size. It is what happens when the user asked for neither of the others.

Sizes are counted in offsets; compaction and transaction markers make the real number of records smaller. Every
offset is in exactly one task, and tasks are sorted by topic, partition and offset.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.model.topics import TopicPartition

DEFAULT_TARGET_BYTES = 64 * 1024 * 1024
MAX_TASKS_BY_SIZE = 10_000
"""Splitting by size makes tasks larger rather than more than this: the scheduler pays for each one."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads of one partition."""

    partition: TopicPartition
    topic_id: str  # "" if unknown
    start: int
    end: int  # exclusive

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Splitting:
    """How ranges become tasks; None switches a rule off."""

    min_partitions: int | None = None
    max_records: int | None = None
    target_bytes: int | None = DEFAULT_TARGET_BYTES


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]
) -> list[OffsetRange]:
    """One range for each partition in both that has anything between, sorted."""
    return [
        OffsetRange(partition, topic_ids.get(partition.topic, ""), start[partition], end[partition])
        for partition in sorted(start.keys() & end.keys())
        if start[partition] < end[partition]
    ]


def split_ranges(
    ranges: Iterable[OffsetRange],
    splitting: Splitting,
    record_bytes: Mapping[TopicPartition, float] | None = None,
) -> list[OffsetRange]:
    """The ranges cut into tasks. record_bytes: estimated bytes per offset; without an estimate size does not
    split."""
    tasks = sorted((one for one in ranges if one.size > 0), key=lambda one: (one.partition, one.start))
    if splitting.target_bytes is not None and record_bytes:
        tasks = _split_by_bytes(tasks, splitting.target_bytes, record_bytes)
    if splitting.max_records is not None:
        limit = splitting.max_records
        tasks = [part for one in tasks for part in divide(one, -(-one.size // limit))]
    if splitting.min_partitions is not None and splitting.min_partitions > len(tasks):
        tasks = _split_to_count(tasks, splitting.min_partitions)
    return tasks


def divide(whole: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """The range in so many parts whose sizes differ by at most one; fewer when it has fewer offsets."""
    start = whole.start
    for left in range(parts, 0, -1):
        end = start + (whole.end - start) // left
        if end > start:
            yield replace(whole, start=start, end=end)
        start = end
    assert start == whole.end, "every offset is in a part"


def _split_to_count(ranges: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """About `count` tasks. Ranges too small for a second part are set aside first, so that their offsets do not
    distort the shares of the others."""
    total = sum(one.size for one in ranges)
    whole = [one for one in ranges if _part_count(one.size, total, count) == 1]
    kept_whole = {one.partition for one in whole}
    total_to_split = total - sum(one.size for one in whole)
    parts_to_make = max(count - len(whole), 1)
    return [
        part
        for one in ranges
        for part in divide(
            one, 1 if one.partition in kept_whole else _part_count(one.size, total_to_split, parts_to_make)
        )
    ]


def _part_count(size: int, total: int, count: int) -> int:
    return max(math.floor(size / total * count + 0.5), 1)


def _split_by_bytes(
    ranges: Sequence[OffsetRange], target_bytes: int, record_bytes: Mapping[TopicPartition, float]
) -> list[OffsetRange]:
    sizes = [one.size * record_bytes.get(one.partition, 0.0) for one in ranges]
    target = max(target_bytes, sum(sizes) / MAX_TASKS_BY_SIZE)
    return [
        part
        for one, size in zip(ranges, sizes, strict=True)
        for part in divide(one, max(math.ceil(size / target), 1))
    ]

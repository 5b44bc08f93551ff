"""How much one batch of a stream takes.

- `maxOffsetsPerTrigger`: the offsets of a batch are shared out among the partitions in proportion to what each
  has. A share below one becomes one, so that small partitions are not starved; any other is rounded down. A
  batch can therefore exceed the limit by less than the number of partitions. As Spark's `kafka` format does.
- `maxBytesPerTrigger`: the same by estimated bytes. Every partition with anything new moves by at least one
  offset, or a record larger than the limit would stop the stream.
- `minOffsetsPerTrigger`: wait until so many offsets are there, but not longer than `maxTriggerDelay` after the
  batch before. The first batch of a run never waits. Unlike in Spark, the delay counts from the last batch that
  read something: a stream that was quiet for longer takes the first new record at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.model.topics import TopicPartition
from headrace.spark.source.offsets import PartitionOffsets

DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
DEFAULT_RECORD_BYTES = 1024.0
"""What an offset is taken to hold where nothing is known: a byte limit has to hold from the first batch on."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of a batch; None means no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    max_bytes: int | None = None


def limit_batch(
    limits: RateLimits,
    start: PartitionOffsets,
    end: PartitionOffsets,
    *,
    last_trigger_ms: int | None,
    now_ms: int,
    record_bytes: Mapping[TopicPartition, float] | None = None,
) -> dict[TopicPartition, int] | None:
    """The ends of the next batch, or None: too little is there, answer the start unchanged.

    `start` holds every partition of `end` (new ones where they begin). last_trigger_ms is the now_ms of the last
    call whose answer moved a partition; None before the first of a run. record_bytes: estimated bytes per
    offset.
    """
    if must_wait(limits, available_offsets(start, end), last_trigger_ms=last_trigger_ms, now_ms=now_ms):
        return None
    ends = {partition: max(offset, start[partition]) for partition, offset in end.items()}
    if limits.max_offsets is not None:
        ends = pro_rata(limits.max_offsets, start, ends)
    if limits.max_bytes is not None:
        ends = _within_bytes(limits.max_bytes, start, ends, record_bytes or {})
    return ends


def available_offsets(start: PartitionOffsets, end: PartitionOffsets) -> int:
    """How many offsets lie between, over all partitions."""
    return sum(max(offset - start[partition], 0) for partition, offset in end.items())


def must_wait(limits: RateLimits, available: int, *, last_trigger_ms: int | None, now_ms: int) -> bool:
    """Whether too little is there for a batch and the delay is not over."""
    if limits.min_offsets is None or last_trigger_ms is None or available >= limits.min_offsets:
        return False
    return now_ms - last_trigger_ms < limits.max_trigger_delay_ms


def pro_rata(limit: int, start: PartitionOffsets, end: PartitionOffsets) -> dict[TopicPartition, int]:
    """The ends of a batch of about `limit` offsets, shared out by what each partition has; never below the start,
    never past the end."""
    total = available_offsets(start, end)
    return {
        partition: _advance(start[partition], offset, lambda size: limit * (size / total))
        for partition, offset in end.items()
    }


def _within_bytes(
    limit: int, start: PartitionOffsets, end: PartitionOffsets, record_bytes: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    total = sum(
        (offset - start[partition]) * record_bytes.get(partition, DEFAULT_RECORD_BYTES)
        for partition, offset in end.items()
    )
    return {
        partition: _advance(start[partition], offset, lambda size: size * (limit / total))
        for partition, offset in end.items()
    }


def _advance(start: int, end: int, share: Callable[[int], float]) -> int:
    """`start` moved by its share of the available records: rounded up below one, else down."""
    if end <= start:
        return start
    exact = share(end - start)
    return min(start + (math.ceil(exact) if exact < 1 else math.floor(exact)), end)

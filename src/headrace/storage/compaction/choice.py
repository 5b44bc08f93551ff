"""Which log is worth cleaning, and from where to where: by the share of bytes that were never compacted.

Never cleaned are the active segment, what is not stable yet, and segments with records younger than
`min.compaction.lag.ms`. A log with a record older than `max.compaction.lag.ms` is due whatever its share.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.storage.compaction.messages import CleaningRequest, SegmentToClean
from headrace.storage.log import Log
from headrace.storage.log_config import NEVER_MS
from headrace.storage.record_checks import decompression_limit
from headrace.storage.resources import StorageResources
from headrace.storage.segment import UNKNOWN, Segment


@dataclass(frozen=True, slots=True)
class Cleanable:
    log: Log
    dirty_offset: int
    """Where the dirty part begins."""
    upper_offset: int
    """Where the first segment begins that must not be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    @property
    def is_due(self) -> bool:
        if not self.dirty_bytes:
            return False
        return self.is_overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio


def find_cleanable(
    log: Log, resources: StorageResources, last_stable_offset: int, now_ms: int
) -> Cleanable | None:
    """What could be cleaned of a log; None if it is not compacted, or has nothing but its active segment."""
    if not log.config.compacted or log.active_base_offset == log.segments[0].base_offset:
        return None
    segments = log.segments[:-1]
    ends = [*(segment.base_offset for segment in segments[1:]), log.active_base_offset]
    dirty_offset = first_dirty_offset(log)
    dirty = [segment for segment, end in zip(segments, ends, strict=True) if end > dirty_offset]
    upper_offset = log.active_base_offset
    lag_ms = log.config.min_compaction_lag_ms
    for segment, end in zip(segments, ends, strict=True):
        is_young = lag_ms > 0 and end > dirty_offset and segment.largest_timestamp(resources)[0] > now_ms - lag_ms
        if end > last_stable_offset or is_young:
            upper_offset = segment.base_offset
            break
    dirty_bytes = sum(segment.size for segment in dirty if segment.base_offset < upper_offset)
    total_bytes = sum(segment.size for segment in segments if segment.base_offset < upper_offset)
    return Cleanable(
        log=log,
        dirty_offset=dirty_offset,
        upper_offset=max(upper_offset, dirty_offset),
        clean_bytes=total_bytes - dirty_bytes,
        dirty_bytes=dirty_bytes if upper_offset > dirty_offset else 0,
        is_overdue=_is_overdue(log, resources, dirty, now_ms),
    )


def first_dirty_offset(log: Log) -> int:
    """Where the part begins that was never compacted. A mark beyond the end is older than the loss of a tail."""
    marked = log.first_dirty_offset
    return marked if log.start_offset <= marked <= log.end_offset else log.start_offset


def _is_overdue(log: Log, resources: StorageResources, dirty: list[Segment], now_ms: int) -> bool:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= NEVER_MS:
        return False
    return any(0 < _first_timestamp(segment, resources) < now_ms - lag_ms for segment in dirty)


def _first_timestamp(segment: Segment, resources: StorageResources) -> int:
    """The largest timestamp of the first batch, which a segment remembers once it is known."""
    if segment.first_timestamp == UNKNOWN:
        data = resources.env.disk.pread(segment.open_file(resources).fd, HEADER_SIZE, 0)
        segment.first_timestamp = parse_header(data).max_timestamp if len(data) == HEADER_SIZE else -1
    return segment.first_timestamp


def request_for(target: Cleanable, now_ms: int, memory_bytes: int, bytes_per_second: float) -> CleaningRequest:
    log, config = target.log, target.log.config
    segments = log.segments
    ends = [*(segment.base_offset for segment in segments[1:]), log.end_offset]
    pairs = [pair for pair in zip(segments, ends, strict=True) if pair[0].base_offset < target.upper_offset]
    return CleaningRequest(
        directory=log.directory,
        sources=tuple(SegmentToClean(segment.base_offset, segment.size, end) for segment, end in pairs),
        dirty_offset=target.dirty_offset,
        upper_offset=target.upper_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        decompressed_bytes=decompression_limit(config),
        memory_bytes=memory_bytes,
        bytes_per_second=bytes_per_second,
        producers=tuple((row.producer_id, row.epoch, row.last_offset) for row in log.producers.snapshot()),
        later_segments=tuple(segment.base_offset for segment in segments[len(pairs) :]),
    )

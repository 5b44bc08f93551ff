"""Which of the oldest segments of a log may go: by age, by size of the log, or below its start offset (R-LOG-4).

Nothing at or above the high watermark goes, and never an empty active segment. Only a run of the oldest segments
goes, so the log has no holes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.storage.resources import StorageResources
from headrace.storage.segment import LOG, Segment

if TYPE_CHECKING:
    from headrace.storage.log import Log


def expired_segments(log: Log, resources: StorageResources, high_watermark: int) -> int:
    """How many of the first segments are to be deleted now; none while compaction is at work on them."""
    if log.cleaning is not None:
        return 0
    segments = log.segments
    now_ms = resources.env.clock.wall_ms()
    surplus = _surplus_bytes(log)
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        end_offset = log.end_offset if is_last else segments[number + 1].base_offset
        if end_offset > high_watermark or (is_last and not segment.size):
            return number
        below_start = end_offset <= log.start_offset
        too_large = 0 < segment.size <= surplus or (not segment.size and surplus > 0)
        if not (below_start or too_large or _too_old(log, segment, now_ms, resources)):
            return number
        surplus -= segment.size
    return len(segments)


def _surplus_bytes(log: Log) -> int:
    config = log.config
    if not config.deletes or config.retention_bytes < 0:
        return 0
    return log.size - config.retention_bytes


def _too_old(log: Log, segment: Segment, now_ms: int, resources: StorageResources) -> bool:
    config = log.config
    if not config.deletes or config.retention_ms < 0:
        return False
    timestamp, _ = segment.largest_timestamp(resources)
    if timestamp < 0:
        timestamp = resources.env.disk.modified_ms(segment.path(LOG))
    return now_ms - timestamp > config.retention_ms

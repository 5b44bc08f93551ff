"""Records by time: ListOffsets for a timestamp and for the largest one. Exact to the record, as Kafka is.

The time index says where to begin, headers tell which batch reaches the time, and only that one is decompressed,
to a limit. For a batch that decompresses to more, its first offset is returned: too early by a few records, never
too late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.reader import read_records
from headrace.storage.record_checks import decompression_limit
from headrace.storage.resources import StorageResources
from headrace.storage.scan import scan_headers
from headrace.storage.segment import Segment

if TYPE_CHECKING:
    from headrace.storage.log import Log

UNREADABLE = frozenset({ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})
"""What a client may have stored: the broker does not look into batches when it takes them."""


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def find_by_timestamp(log: Log, resources: StorageResources, timestamp: int) -> TimestampOffset | None:
    """The first record, from the start offset on, whose timestamp is at least this."""
    for segment in log.segments:
        if segment.largest_timestamp(resources)[0] >= timestamp:
            limit = decompression_limit(log.config)
            found = _find_in_segment(segment, resources, timestamp, log.start_offset, limit)
            if found is not None:
                return found
    return None


def _find_in_segment(
    segment: Segment, resources: StorageResources, timestamp: int, start_offset: int, limit: int
) -> TimestampOffset | None:
    relative = segment.load_index(resources).offset_before_time(timestamp)
    place = segment.locate(max(segment.base_offset + relative, start_offset), resources)
    if place is None:
        return None
    disk, file = resources.env.disk, segment.open_file(resources)
    for position, header in scan_headers(disk, file.fd, place.position, segment.size):
        if header.max_timestamp < timestamp:
            continue
        batch = disk.pread(file.fd, header.size, position)
        try:
            for record in read_records(batch, limit):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
        except KafkaError as error:
            if error.code not in UNREADABLE:
                raise
            first = max(header.base_offset, start_offset)
            return TimestampOffset(header.max_timestamp, first, header.leader_epoch)
    return None


def find_max_timestamp(log: Log, resources: StorageResources) -> TimestampOffset | None:
    latest = max((segment.largest_timestamp(resources)[0] for segment in log.segments), default=-1)
    return None if latest < 0 else find_by_timestamp(log, resources, latest)

"""Producer state found again from the newest snapshot and the batches after it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headrace.env import Disk
from headrace.model.errors import KafkaError
from headrace.records.batch import CONTROL, BatchHeader
from headrace.records.reader import read_records
from headrace.storage.files import read_file
from headrace.storage.producer_snapshot import decode_snapshot
from headrace.storage.producer_state import ProducerStates
from headrace.storage.resources import StorageResources
from headrace.storage.scan import scan_producers
from headrace.storage.segment import SNAPSHOT, Segment, is_offset

_MARKER_VALUE = struct.Struct(">hi")
"""version · coordinator epoch, the value of the record in a control batch that ends a transaction"""


def apply_batch(producers: ProducerStates, header: BatchHeader, batch: bytes | memoryview) -> None:
    """Remember a stored batch of a producer: data, or the end of a transaction."""
    if header.attributes & CONTROL:
        producers.apply_marker(header, _coordinator_epoch(batch))
    else:
        producers.apply(header, header.base_offset)


def _coordinator_epoch(batch: bytes | memoryview) -> int:
    try:
        marker = next(iter(read_records(batch)), None)
    except KafkaError:
        return -1
    if marker is None or marker.value is None or len(marker.value) < _MARKER_VALUE.size:
        return -1
    return int(_MARKER_VALUE.unpack_from(marker.value)[1])


def snapshot_offsets(names: list[str]) -> list[int]:
    """The offsets of the snapshots among the files of a partition's directory, in order."""
    stems = (name[: -len(SNAPSHOT)] for name in names if name.endswith(SNAPSHOT))
    return sorted(int(stem) for stem in stems if is_offset(stem))


def load_snapshot(
    disk: Disk, directory: str, offsets: list[int], at_most: int
) -> tuple[ProducerStates, int] | None:
    """The newest valid snapshot at or before an offset, and its offset. Invalid ones are skipped."""
    for offset in reversed(offsets):
        if offset <= at_most:
            entries = decode_snapshot(read_file(disk, f"{directory}/{offset:020d}{SNAPSHOT}"))
            if entries is not None:
                producers = ProducerStates()
                producers.load(entries)
                return producers, offset
    return None


def replay_segment(
    producers: ProducerStates, segment: Segment, from_offset: int, end_offset: int, resources: StorageResources
) -> None:
    """Apply the batches of one segment from one offset to another."""
    place = segment.locate(from_offset, resources)
    if place is None:
        return
    last = segment.locate(end_offset, resources)
    end = segment.size if last is None else last.position
    disk, file = resources.env.disk, segment.open_file(resources)
    for position, header in scan_producers(disk, file.fd, place.position, end):
        batch = disk.pread(file.fd, header.size, position) if header.attributes & CONTROL else b""
        apply_batch(producers, header, batch)


def replay_log(
    producers: ProducerStates,
    segments: Sequence[Segment],
    from_offset: int,
    end_offset: int,
    resources: StorageResources,
) -> None:
    if from_offset >= end_offset:
        return
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, segment_end in zip(segments, ends, strict=True):
        if segment_end > from_offset and segment.base_offset < end_offset:
            replay_segment(producers, segment, from_offset, end_offset, resources)

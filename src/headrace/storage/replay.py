"""Producer state found again from the newest snapshot and the batches after it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.env import Disk
from headrace.records.batch import CONTROL, BatchHeader
from headrace.records.markers import ABORT, COMMIT, read_marker
from headrace.storage.files import read_file
from headrace.storage.producer_snapshot import decode_snapshot
from headrace.storage.producer_state import NO_TRANSACTION, ProducerStates
from headrace.storage.resources import StorageResources
from headrace.storage.scan import scan_producers
from headrace.storage.segment import SNAPSHOT, Segment, is_offset
from headrace.storage.transaction_index import AbortedTransaction

_ENDS = (ABORT, COMMIT, None)
"""Control records that end a transaction. One that compaction emptied ends one of which nothing is left."""


def apply_batch(
    producers: ProducerStates, header: BatchHeader, batch: bytes | bytearray | memoryview
) -> AbortedTransaction | None:
    """Remember a stored batch of a producer: data, or the end of a transaction. What it aborted."""
    if not header.attributes & CONTROL:
        producers.apply(header, header.base_offset)
        return None
    kind, coordinator_epoch = read_marker(batch)
    return apply_end(producers, header, kind, coordinator_epoch) if kind in _ENDS else None


def apply_end(
    producers: ProducerStates, header: BatchHeader, kind: int | None, coordinator_epoch: int
) -> AbortedTransaction | None:
    """Remember a stored marker. What it aborted."""
    first_offset = producers.apply_marker(header, coordinator_epoch)
    if kind != ABORT or first_offset == NO_TRANSACTION:
        return None
    last_offset = header.last_offset
    stable = producers.first_open_transaction()
    return AbortedTransaction(
        header.producer_id, first_offset, last_offset, last_offset + 1 if stable == NO_TRANSACTION else stable
    )


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

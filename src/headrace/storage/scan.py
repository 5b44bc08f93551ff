"""Walking over the batches of a segment file: headers only, or with every check that recovery needs.

Reads are large where bytes are checked and small where only headers matter, and never one per batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from headrace.env import Disk
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import (
    BASE_OFFSET_AND_LENGTH,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
)

HEADER_CHUNK_BYTES = 64 * 1024
VERIFY_CHUNK_BYTES = 4 * 1024 * 1024
LOOKUP_CHUNK_BYTES = 8 * 1024
SMALLEST_BATCH_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD
_PLACE = struct.Struct(">qi11xi")
"""baseOffset · batchLength · (epoch, magic, crc, attributes) · lastOffsetDelta"""
_LENGTH_AND_PRODUCER = struct.Struct(">8xi31xq")


_new_tuple = tuple.__new__
"""Makes a named tuple without a call into Python: every read looks for a batch."""


class BatchPlace(NamedTuple):
    position: int
    size: int
    base_offset: int
    last_offset: int


def read_place(disk: Disk, fd: int, position: int) -> BatchPlace | None:
    """What the header at `position` says of its batch, unchecked; None if the file ends before it does."""
    data = disk.pread(fd, _PLACE.size, position)
    if len(data) < _PLACE.size:
        return None
    base_offset, length, delta = _PLACE.unpack(data)
    return _new_tuple(BatchPlace, (position, length + LENGTH_OVERHEAD, base_offset, base_offset + delta))


def find_batch(disk: Disk, fd: int, position: int, end: int, offset: int) -> BatchPlace | None:
    """The first batch from `position` (where a batch begins) to `end` that reaches up to `offset` or beyond."""
    unpack_from = _PLACE.unpack_from
    while position < end:
        chunk = disk.pread(fd, LOOKUP_CHUNK_BYTES, position)
        within, last_start = 0, min(len(chunk) - _PLACE.size, end - position - 1)
        if last_start < 0:
            raise _damaged(position)
        while within <= last_start:
            base_offset, length, delta = unpack_from(chunk, within)
            if base_offset + delta >= offset:
                return _new_tuple(
                    BatchPlace, (position + within, length + LENGTH_OVERHEAD, base_offset, base_offset + delta)
                )
            if length < SMALLEST_BATCH_LENGTH:
                raise _damaged(position + within)
            within += length + LENGTH_OVERHEAD
        position += within
    return None


def scan_headers(disk: Disk, fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch from `position` to `end`, trusting the bytes."""
    while position < end:
        chunk = disk.pread(fd, HEADER_CHUNK_BYTES, position)
        within, last_start = 0, len(chunk) - HEADER_SIZE
        if last_start < 0:
            raise _damaged(position)
        while within <= last_start and position + within < end:
            header = BatchHeader._make(HEADER.unpack_from(chunk, within))
            if header.batch_length < SMALLEST_BATCH_LENGTH:
                raise _damaged(position + within)
            yield position + within, header
            within += header.batch_length + LENGTH_OVERHEAD
        position += within


def split_batches(data: memoryview) -> Iterator[tuple[int, int]]:
    """(position, size) of the batches in `data`; a batch cut off at the end is left out."""
    position, end = 0, len(data)
    while end - position >= HEADER_SIZE:
        size = BASE_OFFSET_AND_LENGTH.unpack_from(data, position)[1] + LENGTH_OVERHEAD
        if size < HEADER_SIZE:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A record batch states {size} bytes")
        if position + size > end:
            return
        yield position, size
        position += size


def scan_producers(disk: Disk, fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Like `scan_headers`, but only the batches that a producer with an id wrote: quick over all others."""
    unpack_from = _LENGTH_AND_PRODUCER.unpack_from
    while position < end:
        chunk = disk.pread(fd, HEADER_CHUNK_BYTES, position)
        within, last_start = 0, min(len(chunk) - HEADER_SIZE, end - position - 1)
        if last_start < 0:
            raise _damaged(position)
        while within <= last_start:
            length, producer_id = unpack_from(chunk, within)
            if length < SMALLEST_BATCH_LENGTH:
                raise _damaged(position + within)
            if producer_id >= 0:
                yield position + within, BatchHeader._make(HEADER.unpack_from(chunk, within))
            within += length + LENGTH_OVERHEAD
        position += within


class Expectation:
    """What the next batch must look like to belong to the log: offset and epoch are outside its CRC.

    A log that has gaps may not be known as one: a follower copies those of its leader. So a gap may also be
    provable: by the batch behind, since a wrong offset would reach beyond that one's; or by records that are
    missing inside of a batch, since the CRC covers their number. From then on gaps are allowed.
    """

    __slots__ = ("_gaps_provable", "gaps_allowed", "leader_epoch", "next_offset")

    def __init__(
        self, next_offset: int, leader_epoch: int, gaps_allowed: bool, gaps_provable: bool = False
    ) -> None:
        self._gaps_provable = gaps_provable
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.gaps_allowed = gaps_allowed

    def accepts(self, header: BatchHeader) -> bool:
        base_offset, _, leader_epoch, magic, _, _, delta, _, _, _, _, _, count = header
        if leader_epoch < self.leader_epoch or delta < 0 or magic != MAGIC:
            return False
        if self._gaps_provable and base_offset == self.next_offset and count <= delta:
            self.gaps_allowed = True
        # Only compaction, here or at the leader, leaves gaps.
        if (base_offset != self.next_offset or count != delta + 1) and (
            not self.gaps_allowed or base_offset < self.next_offset or count > delta + 1
        ):
            return False
        self.next_offset = base_offset + delta + 1
        self.leader_epoch = leader_epoch
        return True

    @property
    def may_prove_gap(self) -> bool:
        return self._gaps_provable and not self.gaps_allowed

    def accepts_gap_before(self, header: BatchHeader, following: BatchHeader | None) -> bool:
        """A batch that was not accepted, if the gap before it is real: `following` is what follows it."""
        both = Expectation(self.next_offset, self.leader_epoch, gaps_allowed=True)
        if following is None or not (both.accepts(header) and both.accepts(following)):
            return False
        self.gaps_allowed = True
        return self.accepts(header)


def scan_verified(
    disk: Disk, fd: int, position: int, end: int, expected: Expectation, chunk_bytes: int = VERIFY_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, batch) of every batch that is whole and fits, ending before the first that is not.

    `expected` is then what the next batch would have to be.
    """
    wanted = chunk_bytes
    while end - position >= HEADER_SIZE:
        chunk = memoryview(disk.pread(fd, min(wanted, end - position), position))
        within, size, limit = 0, 0, len(chunk)
        while within + HEADER_SIZE <= limit:
            header = BatchHeader._make(HEADER.unpack_from(chunk, within))
            size = header[1] + LENGTH_OVERHEAD
            if size < HEADER_SIZE or size > end - position - within:
                return
            if within + size > limit:
                break
            batch = chunk[within : within + size]
            if crc32c(batch[CRC_START:]) != header[4]:
                return
            if not expected.accepts(header):
                behind = position + within + size
                if not expected.may_prove_gap:
                    return
                if not expected.accepts_gap_before(header, _whole_batch(disk, fd, behind, end)):
                    return
            yield position + within, header, batch
            within += size
        if not within and wanted >= size and limit < min(wanted, end - position):
            return  # the file is shorter than it was said to be
        position += within
        wanted = max(chunk_bytes, size)


def _whole_batch(disk: Disk, fd: int, position: int, end: int) -> BatchHeader | None:
    """The header of the batch at `position`, if all of it is there."""
    data = disk.pread(fd, HEADER_SIZE, position)
    if len(data) < HEADER_SIZE or end - position < HEADER_SIZE:
        return None
    header = BatchHeader._make(HEADER.unpack(data))
    size = header.batch_length + LENGTH_OVERHEAD
    if not HEADER_SIZE <= size <= end - position:
        return None
    return header if crc32c(disk.pread(fd, size, position)[CRC_START:]) == header.crc else None


def _damaged(position: int) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR, f"There is no record batch at position {position} of a segment"
    )

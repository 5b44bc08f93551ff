"""Verifying what was stored long ago: every batch of a segment, its checksum and its place, a slice at a time.

Recovery trusts what is below the recovery point, and readers get bytes as they are; so damage to old data shows
only to clients that verify checksums. This looks for it. A slice is small, so that the thread which reads it never
keeps the interpreter from the loop for long.
"""

from __future__ import annotations

from crc32c import crc32c

from headrace.env import Disk
from headrace.env.env import READ_ONLY
from headrace.records.batch import CRC_START, HEADER_SIZE, parse_header
from headrace.storage.files import OpenFile
from headrace.storage.log import Log
from headrace.storage.resources import StorageResources
from headrace.storage.scan import Expectation, scan_verified
from headrace.storage.segment import LOG, Segment

SLICE_BYTES = 256 * 1024


class SegmentCheck:
    """The verification of one segment up to `end`. Opening and stepping block."""

    __slots__ = (
        "_batches",
        "_disk",
        "_end",
        "_expected",
        "_file",
        "_gaps_allowed",
        "_next_base_offset",
        "_position",
        "is_done",
    )

    def __init__(
        self, disk: Disk, segment: Segment, end: int, next_base_offset: int | None, gaps_allowed: bool
    ) -> None:
        """`next_base_offset` is where the next segment begins. Raises FileNotFoundError if this one is gone."""
        self._disk = disk
        # Not through the cache of open files: it is for readers.
        self._file = OpenFile(disk, segment.path(LOG), READ_ONLY)
        self._end = end
        self._next_base_offset = next_base_offset
        self._gaps_allowed = gaps_allowed
        self._expected = Expectation(segment.base_offset, -1, gaps_allowed, gaps_provable=True)
        self._batches = scan_verified(disk, self._file.fd, 0, end, self._expected, SLICE_BYTES)
        self._position = 0
        self.is_done = False

    @property
    def offset(self) -> int:
        """The first offset that has not been verified."""
        return self._expected.next_offset

    def step(self) -> tuple[int, str | None]:
        """Verify the next slice: how many bytes it had, and what is wrong with it. After damage it is done."""
        began = self._position
        for start, _, batch in self._batches:
            self._position = start + len(batch)
            if self._position - began >= SLICE_BYTES:
                return self._position - began, None
        self.is_done = True
        damage = self._damage() if self._position < self._end else self._misfit()
        return self._position - began, damage

    def _damage(self) -> str:
        position = self._position
        where = f"at position {position}, where offset {self.offset} should begin,"
        data = self._disk.pread(self._file.fd, HEADER_SIZE, position)
        if len(data) < HEADER_SIZE or not HEADER_SIZE <= parse_header(data).size <= self._end - position:
            return f"{where} there is no complete record batch"
        header = parse_header(data)
        batch = self._disk.pread(self._file.fd, header.size, position)
        if crc32c(memoryview(batch)[CRC_START:]) != header.crc:
            return f"{where} the checksum of a record batch does not match"
        return f"{where} there is a batch of offsets {header.base_offset} to {header.last_offset}"

    def _misfit(self) -> str | None:
        following = self._next_base_offset
        if following is None or following == self.offset:
            return None
        if following < self.offset:
            return f"it reaches up to offset {self.offset}, and the next segment begins at {following}"
        if self._gaps_allowed:
            return None
        return f"it ends at offset {self.offset}, and the next segment begins at {following}: records are missing"


def begin_check(log: Log, segment: Segment, resources: StorageResources) -> SegmentCheck | None:
    """Blocking. None if the segment is gone, or has nothing that a recovery would trust."""
    segments = log.segments
    if segment not in segments:
        return None
    end, number = segment.size, segments.index(segment)
    following = segments[number + 1].base_offset if number + 1 < len(segments) else None
    try:
        if following is None and log.recovery_point < log.end_offset:
            end = _position_of(segment, log.recovery_point, resources)
            if not end:
                return None
        gaps_allowed = log.config.compacted or log.first_dirty_offset >= 0
        return SegmentCheck(resources.env.disk, segment, end, following, gaps_allowed)
    except FileNotFoundError:
        return None


def _position_of(segment: Segment, offset: int, resources: StorageResources) -> int:
    place = segment.locate(offset, resources) if offset > segment.base_offset else None
    return place.position if place is not None else 0

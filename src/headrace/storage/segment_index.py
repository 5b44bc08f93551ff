"""The sparse indexes of a segment: offset to position, and timestamp to offset. Kafka's formats to the byte.

    .index      entries of 8 bytes: relative offset uint32 · position uint32
    .timeindex  entries of 12 bytes: timestamp int64 · relative offset uint32

An offset entry names the *last* offset of a batch and where that batch begins; a time entry says "up to this
relative offset, the largest timestamp is this". Both grow strictly. An index is only a hint that saves
scanning: whatever is missing, short or senseless is rebuilt from the segment.
In memory an offset entry is one integer, `relative offset << 32 | position`, so that bisection runs in C.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from threading import Lock

from headrace.env import Disk
from headrace.storage.files import read_file, write_at

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_POSITION_MASK = 0xFFFFFFFF
_SWAP = sys.byteorder == "little"
_LOW, _HIGH = (0, 1) if _SWAP else (1, 0)
"""Where the two halves of a 64-bit number are when it is taken for two of 32 bits."""
_OBJECT_BYTES = 400
NOT_WRITTEN = -1
_SAVING = Lock()
"""A flush in a thread and a roll on the loop may save the same index: one after the other."""


def _position(entry: int) -> int:
    return entry & _POSITION_MASK


class SegmentIndex:
    __slots__ = ("entries", "time_offsets", "timestamps", "written_entries", "written_times")

    def __init__(self) -> None:
        self.entries = array("Q")
        self.timestamps = array("q")
        self.time_offsets = array("I")
        self.written_entries = self.written_times = NOT_WRITTEN
        """How many entries the files hold already."""

    @property
    def memory_bytes(self) -> int:
        return _OBJECT_BYTES + 8 * len(self.entries) + 12 * len(self.timestamps)

    @property
    def last_position(self) -> int:
        return self.entries[-1] & _POSITION_MASK if self.entries else 0

    @property
    def last_timestamp(self) -> int:
        return self.timestamps[-1] if self.timestamps else -1

    def add(self, relative_offset: int, position: int) -> None:
        assert not self.entries or relative_offset > self.entries[-1] >> 32
        self.entries.append(relative_offset << 32 | position)

    def add_time(self, timestamp: int, relative_offset: int) -> None:
        """Only a timestamp above all before it makes an entry."""
        if timestamp > self.last_timestamp:
            # In this order: a search in another thread looks into the second for what it found in the first.
            self.time_offsets.append(relative_offset)
            self.timestamps.append(timestamp)

    def position_before(self, relative_offset: int) -> tuple[int, int]:
        """(relative offset, position) of the last entry at or before it; (-1, 0) if there is none."""
        found = bisect_right(self.entries, relative_offset << 32 | _POSITION_MASK)
        if not found:
            return -1, 0
        entry = self.entries[found - 1]
        return entry >> 32, entry & _POSITION_MASK

    def around(self, relative_offset: int) -> tuple[int, int, int, int]:
        """(relative offset, position) of the last entry at or before it, and of the next one; (-1, 0) for none."""
        entries = self.entries
        found = bisect_right(entries, relative_offset << 32 | _POSITION_MASK)
        before, position = (entries[found - 1] >> 32, entries[found - 1] & _POSITION_MASK) if found else (-1, 0)
        if found == len(entries):
            return before, position, -1, 0
        return before, position, entries[found] >> 32, entries[found] & _POSITION_MASK

    def offset_at(self, position: int) -> int:
        """The relative offset that the first entry at or after a position names; -1 if there is none."""
        found = bisect_left(self.entries, position, key=_position)
        return -1 if found == len(self.entries) else self.entries[found] >> 32

    def offset_before_time(self, timestamp: int) -> int:
        """The relative offset from which a search for `timestamp` may begin: nothing before it is as late."""
        found = bisect_right(self.timestamps, timestamp - 1)
        return int(self.time_offsets[found - 1]) + 1 if found else 0

    def truncate(self, relative_offset: int, position: int) -> None:
        """Forget what lies at or after an offset (which is at `position`)."""
        keep = bisect_right(self.entries, relative_offset << 32) if relative_offset else 0
        while keep and self.entries[keep - 1] & _POSITION_MASK >= position:
            keep -= 1
        del self.entries[keep:]
        while self.time_offsets and self.time_offsets[-1] >= relative_offset:
            self.timestamps.pop()
            self.time_offsets.pop()
        self.forget_files()

    def is_sane(self, size: int) -> bool:
        """Does everything grow, and point into a segment of `size` bytes?"""
        halves = array("I", self.entries.tobytes())
        return (
            (not self.entries or self.last_position < size)
            and _grows(halves[_HIGH::2])
            and _grows(halves[_LOW::2])
            and _grows(self.timestamps)
            and _grows(self.time_offsets)
        )

    def forget_files(self) -> None:
        """What the files hold is not a part of this index: write them whole next time."""
        self.written_entries = self.written_times = NOT_WRITTEN

    def save(self, disk: Disk, path: str, time_path: str, sync: bool = False) -> None:
        """Write what the files do not hold yet."""
        with _SAVING:
            count, times = len(self.entries), len(self.timestamps)
            if count != self.written_entries:
                first = max(self.written_entries, 0)
                data = _swapped(self.entries[first:count]).tobytes()
                write_at(disk, path, first * OFFSET_ENTRY_BYTES, data, sync)
                self.written_entries = count
            if times != self.written_times:
                first = max(self.written_times, 0)
                data = _time_bytes(self.timestamps[first:times], self.time_offsets[first:times])
                write_at(disk, time_path, first * TIME_ENTRY_BYTES, data, sync)
                self.written_times = times


def load_index(disk: Disk, path: str, time_path: str, size: int) -> SegmentIndex | None:
    """The index as its files hold it; None if they are missing or make no sense for `size` bytes of segment."""
    try:
        offset_bytes, time_bytes = read_file(disk, path), read_file(disk, time_path)
    except FileNotFoundError:
        return None
    if len(offset_bytes) % OFFSET_ENTRY_BYTES or len(time_bytes) % TIME_ENTRY_BYTES:
        return None
    index = SegmentIndex()
    index.entries = _swapped(array("Q", offset_bytes))
    words = array("I", time_bytes)
    if _SWAP:
        words.byteswap()
    halves = array("I", bytes(len(words) // 3 * 8))
    halves[_HIGH::2], halves[_LOW::2] = words[::3], words[1::3]
    index.timestamps = array("q", halves.tobytes())
    index.time_offsets = words[2::3]
    index.written_entries, index.written_times = len(index.entries), len(index.timestamps)
    return index if index.is_sane(size) else None


def _grows(values: array[int]) -> bool:
    """Strictly. In terms that run in C: the index of a full segment has hundreds of thousands of entries."""
    numbers = values.tolist()
    return numbers == sorted(numbers) and len(numbers) == len(set(numbers))


def _swapped(entries: array[int]) -> array[int]:
    if _SWAP:
        entries.byteswap()
    return entries


def _time_bytes(timestamps: array[int], offsets: array[int]) -> bytes:
    words = array("I", bytes(len(timestamps) * TIME_ENTRY_BYTES))
    halves = array("I", timestamps.tobytes())
    words[::3], words[1::3] = halves[_HIGH::2], halves[_LOW::2]
    words[2::3] = offsets
    if _SWAP:
        words.byteswap()
    return words.tobytes()

"""The aborted transactions that ended in a segment: what a read_committed fetch tells its consumer to leave out.

    .txnindex    entries of 34 bytes: version int16 (0) · producerId int64 · firstOffset int64 · lastOffset int64 ·
                 lastStableOffset int64, in the order of the markers. Kafka's format to the byte

`lastOffset` is the offset of the marker, `lastStableOffset` what was stable after it: every transaction that
begins before that offset has ended, so that a search for those up to it may end here.

Rules:
- Most segments have none, and no file. A log that never had one pays nothing.
- An entry is in memory first and written at once. Where the write fails, the next one, or a flush, writes it too.
- Everything below the recovery point is on the device, or the flush fails: see `syncing`.
- At the start after a crash the entries of what is verified are rebuilt from the markers. A file that makes no
  sense, for its size or its offsets, is not believed: the log is verified from its beginning.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from threading import Lock
from typing import NamedTuple

from headrace.env import Disk
from headrace.env.env import READ_WRITE
from headrace.storage.files import OpenFile, read_file, write_at

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_VERSION = 0
_OBJECT_BYTES = 300
_MEMORY_PER_ENTRY = 220
_SAVING = Lock()
"""A flush in a thread and an append on the loop may save the same index: one after the other."""


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


_LAST_OFFSET = attrgetter("last_offset")


def read_transaction_index(disk: Disk, path: str) -> list[AbortedTransaction]:
    """The entries of an index file; none if there is no file. An incomplete entry at the end is ignored."""
    return [AbortedTransaction(*fields) for version, *fields in _rows(disk, path) if version == _VERSION]


def _rows(disk: Disk, path: str) -> Iterable[tuple[int, ...]]:
    try:
        data = read_file(disk, path)
    except FileNotFoundError:
        return ()
    whole = len(data) - len(data) % ENTRY_BYTES
    return _ENTRY.iter_unpack(memoryview(data)[:whole])


def is_sane(disk: Disk, path: str, base_offset: int, end_offset: int) -> bool:
    """Are these entries? Do the markers below an offset grow, lie in the segment, and follow what they ended?"""
    previous = base_offset - 1
    for version, *fields in _rows(disk, path):
        if version != _VERSION:
            return False
        entry = AbortedTransaction(*fields)
        if entry.last_offset >= end_offset:
            return True
        if entry.last_offset <= previous or not 0 <= entry.first_offset < entry.last_offset:
            return False
        previous = entry.last_offset
    return True


def encode_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


class TransactionIndex:
    __slots__ = ("_cuts", "_saved", "_synced", "entries")

    def __init__(self, entries: list[AbortedTransaction]) -> None:
        """`entries` are what the file holds."""
        self.entries = entries
        self._saved = len(entries)
        self._synced = self._cuts = 0

    @property
    def memory_bytes(self) -> int:
        return _OBJECT_BYTES + _MEMORY_PER_ENTRY * len(self.entries)

    def save(self, disk: Disk, path: str) -> None:
        """Write what the file does not hold yet."""
        with _SAVING:
            count = len(self.entries)
            if count != self._saved:
                data = encode_transaction_index(self.entries[self._saved : count])
                write_at(disk, path, self._saved * ENTRY_BYTES, data)
                self._saved = count

    def sync(self, disk: Disk, path: str) -> None:
        """Blocking. Everything onto the device that is not known to be there."""
        self.save(disk, path)
        cuts, count = self._cuts, self._saved
        if count > self._synced:
            file = OpenFile(disk, path, READ_WRITE)
            disk.fdatasync(file.fd)
            with _SAVING:
                if self._cuts == cuts:
                    self._synced = count

    def truncate(self, disk: Disk, path: str, end_offset: int) -> None:
        """Forget the transactions whose marker is at or after an offset, in the file too."""
        with _SAVING:
            keep = bisect_left(self.entries, end_offset, key=_LAST_OFFSET)
            if keep == len(self.entries):
                return
            self._cuts += 1
            del self.entries[keep:]
            if self._saved > keep:
                self._saved, self._synced = keep, min(self._synced, keep)
                file = OpenFile(disk, path, READ_WRITE)
                disk.truncate(file.fd, keep * ENTRY_BYTES)

    def collect(self, from_offset: int, upper_offset: int, into: list[AbortedTransaction]) -> bool:
        """Add those that overlap the offsets from one to the other; whether no later segment can have more."""
        entries = self.entries
        for place in range(bisect_left(entries, from_offset, key=_LAST_OFFSET), len(entries)):
            entry = entries[place]
            if entry.first_offset < upper_offset:
                into.append(entry)
            if entry.last_stable_offset >= upper_offset:
                return True
        return False

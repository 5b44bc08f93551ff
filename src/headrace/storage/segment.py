"""One segment of a log: a run of batches in one file, named by its first offset, with its indexes.

    00000000000000000042.log .index .timeindex     batches, and the sparse indexes of `segment_index`
    00000000000000000042.txnindex                  aborted transactions, where there are any: `transaction_index`

The active segment keeps its file open and its index in memory, and writes the index files only when it is flushed,
rolled or closed. Old segments open their file and load their index on demand, through caches that all logs share.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.env.env import CREATE, READ_ONLY, READ_WRITE
from headrace.records.batch import HEADER_SIZE, BatchHeader, parse_header
from headrace.storage.files import OpenFile
from headrace.storage.resources import StorageResources
from headrace.storage.scan import BatchPlace, find_batch, read_place, scan_headers
from headrace.storage.segment_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, SegmentIndex, load_index
from headrace.storage.transaction_index import AbortedTransaction, TransactionIndex, read_transaction_index

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
SNAPSHOT = ".snapshot"
TRANSACTION_INDEX = ".txnindex"
DELETED = ".deleted"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)
OWN_FILES = (*SEGMENT_SUFFIXES, SNAPSHOT)

OFFSET_DIGITS = 20
_MAX_OFFSET = f"{2**63 - 1:020d}"
MAX_RELATIVE_OFFSET = 2**31 - 1
SMALL_BYTES = 4096
"""A segment of this size may have no index files: a start reads its headers instead."""
UNKNOWN = -2
_FAR_APART_BYTES = 8 * 1024
"""Index entries this far apart: batches are larger than the interval of the index, so that each has an entry."""
_LAGGING_INDEX_BYTES = 4 * 1024 * 1024
"""An index that ends so far before its segment does was lost in part and is rebuilt."""


_new_tuple = tuple.__new__
"""Makes a named tuple without a call into Python: readers at the tail come here."""


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def is_offset(stem: str) -> bool:
    """Can a file with this name before its suffix belong to a segment?"""
    return len(stem) == OFFSET_DIGITS and stem.isascii() and stem.isdigit() and stem <= _MAX_OFFSET


class Segment:
    __slots__ = (
        "base_offset",
        "created_ms",
        "directory",
        "file",
        "first_timestamp",
        "has_aborted",
        "index",
        "index_full",
        "last_batch_offset",
        "last_batch_position",
        "last_index_position",
        "last_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "own_index_from",
        "size",
        "transactions",
    )

    def __init__(self, directory: str, base_offset: int, size: int = 0) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.file: OpenFile | None = None
        """Held by the active segment only."""
        self.index: SegmentIndex | None = None
        """Held by the active segment only, and only once it has entries."""
        self.has_aborted = False
        """Whether it has an index of aborted transactions."""
        self.transactions: TransactionIndex | None = None
        """Held by the active segment only, and only where it has one."""
        self.own_index_from = 0
        """From this position on the index in memory was made by this process, and needs no doubt."""
        self.index_full = False
        self.last_index_position = 0
        self.created_ms = 0
        self.first_timestamp = UNKNOWN if size else -1
        """The largest timestamp of the first batch: rolling by time counts from it."""
        self.max_timestamp = UNKNOWN if size else -1
        self.max_timestamp_offset = -1
        self.last_batch_offset = UNKNOWN
        """Where the last batch begins, once that is known: readers at the tail need no search."""
        self.last_batch_position = 0
        self.last_offset = UNKNOWN

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    def open_active(self, resources: StorageResources) -> None:
        self.file = OpenFile(resources.env.disk, self.path(LOG), READ_WRITE | CREATE, resources.health)

    def reopen(self, resources: StorageResources) -> None:
        """An old segment becomes the active one again."""
        timestamp, timestamp_offset = self.largest_timestamp(resources)
        index = self.load_index(resources)
        transactions = self.aborted(resources) if self.has_aborted else None
        self.drop_caches(resources)
        self.open_active(resources)
        self.transactions = transactions
        self.index, self.last_index_position = index, index.last_position
        self.own_index_from = self.size
        self.max_timestamp, self.max_timestamp_offset = timestamp, timestamp_offset

    def open_file(self, resources: StorageResources) -> OpenFile:
        file = self.file or resources.file_cache.get(self)
        if file is None:
            file = OpenFile(resources.env.disk, self.path(LOG), READ_ONLY, resources.health)
            resources.file_cache.put(self, file)
        return file

    def note_append(self, header: BatchHeader, last_offset: int, position: int, index_interval: int) -> None:
        """Account for a batch that was written at `position`, the end until now."""
        timestamp = header.max_timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if position - self.last_index_position > index_interval:
            self.add_index_entry(last_offset, position)
        elif not position:
            self.first_timestamp = timestamp
        self.last_batch_position = position
        self.last_batch_offset = last_offset - header.last_offset_delta
        self.last_offset = last_offset

    def note_last_batch(self, position: int, header: BatchHeader) -> None:
        self.last_batch_position = position
        self.last_batch_offset, self.last_offset = header.base_offset, header.last_offset

    def add_index_entry(self, last_offset: int, position: int) -> None:
        if self.index is None:
            self.index = SegmentIndex()
        base_offset = self.base_offset
        self.index.add(last_offset - base_offset, position)
        if self.max_timestamp >= 0:
            self.index.add_time(self.max_timestamp, self.max_timestamp_offset - base_offset)
        self.last_index_position = position

    def check_index_full(self, index_bytes: int) -> None:
        if self.index is not None:
            self.index_full = (
                len(self.index.entries) >= index_bytes // OFFSET_ENTRY_BYTES
                or len(self.index.timestamps) >= index_bytes // TIME_ENTRY_BYTES - 1
            )

    def save_index(self, resources: StorageResources, final: bool, sync: bool = False) -> None:
        """Bring the index files up to date; `final` adds the largest timestamp: a closed segment has it.

        The transactions first: recovery looks for them only after the last entry of the other index.
        """
        if self.transactions is not None:
            self.transactions.save(resources.env.disk, self.path(TRANSACTION_INDEX))
        index = self.index
        if index is None:
            if not final:
                return
            index = self.index = SegmentIndex()
        if final and self.max_timestamp >= 0:
            index.add_time(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        index.save(resources.env.disk, self.path(INDEX), self.path(TIME_INDEX), sync)

    def retire(self, resources: StorageResources) -> None:
        """The active segment becomes an old one: nothing is held any more but what the caches keep."""
        self.save_index(resources, final=True)
        assert self.index is not None
        resources.index_cache.put(self, self.index)
        if self.transactions is not None:
            resources.transaction_cache.put(self, self.transactions)
        self.index = self.file = self.transactions = None

    def drop_caches(self, resources: StorageResources) -> None:
        resources.index_cache.drop(self)
        if self.has_aborted:
            resources.transaction_cache.drop(self)
        resources.file_cache.drop(self)

    def bury(self, resources: StorageResources, delay_ms: int, suffixes: Sequence[str] = OWN_FILES) -> None:
        """Rename the files away, to be removed later off the loop. Readers keep what they have open."""
        self.drop_caches(resources)
        for suffix in suffixes:
            path = self.path(suffix)
            try:
                resources.env.disk.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            resources.graveyard.add_file(path + DELETED, delay_ms)
        self.file = self.index = self.transactions = None

    def aborted(self, resources: StorageResources) -> TransactionIndex:
        """The transactions that were aborted in this segment, from memory or from their file."""
        index = self.transactions or resources.transaction_cache.get(self)
        if index is None:
            path = self.path(TRANSACTION_INDEX)
            index = TransactionIndex(read_transaction_index(resources.env.disk, path) if self.has_aborted else [])
            if self.file is not None:
                self.transactions = index
            elif self.has_aborted:
                resources.transaction_cache.put(self, index)
        return index

    def add_aborted(self, transaction: AbortedTransaction, resources: StorageResources) -> None:
        """A marker was appended that aborted something. If the entry cannot be written now, it is later."""
        index = self.aborted(resources)
        index.entries.append(transaction)
        self.has_aborted = True
        try:
            index.save(resources.env.disk, self.path(TRANSACTION_INDEX))
        except OSError as error:
            resources.health.judge(error)

    def offset_after(self, position: int, resources: StorageResources) -> int | None:
        """An offset that nothing before `position` reaches, from the index; None if it does not tell."""
        relative = self.load_index(resources).offset_at(position)
        return None if relative < 0 else self.base_offset + relative

    def load_index(self, resources: StorageResources) -> SegmentIndex:
        """The index of this segment from memory, from its files, or from the batches themselves."""
        if self.file is not None:
            if self.index is None:
                self.index = SegmentIndex()
            return self.index
        index = resources.index_cache.get(self)
        if index is None:
            index = load_index(resources.env.disk, self.path(INDEX), self.path(TIME_INDEX), self.size)
            if index is None or self.size - index.last_position > _LAGGING_INDEX_BYTES:
                return self.rebuild_index(resources)
            resources.index_cache.put(self, index)
        return index

    def rebuild_index(self, resources: StorageResources, interval: int = 4096) -> SegmentIndex:
        """From the headers of the batches, and onto the disk."""
        builder = Segment(self.directory, self.base_offset)
        builder.index = SegmentIndex()
        file = self.open_file(resources)
        for position, header in scan_headers(resources.env.disk, file.fd, 0, self.size):
            builder.note_append(header, header.last_offset, position, interval)
        builder.save_index(resources, final=self.file is None)
        self.max_timestamp, self.max_timestamp_offset = builder.max_timestamp, builder.max_timestamp_offset
        if self.file is not None:
            self.index, self.last_index_position = builder.index, builder.last_index_position
            self.own_index_from = 0
        else:
            resources.index_cache.put(self, builder.index)
        return builder.index

    def locate(self, offset: int, resources: StorageResources) -> BatchPlace | None:
        """The first batch that reaches up to `offset` or beyond; None if this segment ends before."""
        if 0 <= self.last_batch_offset <= offset:
            position, last_offset = self.last_batch_position, self.last_offset
            if offset > last_offset:
                return None
            return _new_tuple(BatchPlace, (position, self.size - position, self.last_batch_offset, last_offset))
        disk, file = resources.env.disk, self.open_file(resources)
        relative, position, next_relative, next_position = self.load_index(resources).around(
            offset - self.base_offset
        )
        if relative >= 0 and next_position - position > _FAR_APART_BYTES:
            # An entry names the last offset of its batch, so that ours is most likely the one of the next entry.
            # Not before the first one: a segment's first batch has no entry.
            place = read_place(disk, file.fd, next_position)
            named = self.base_offset + next_relative
            if place is not None and place.base_offset <= offset and place.last_offset == named:
                return place
        if relative >= 0 and not self._is_indexed_at(relative, position, resources):
            _, position = self.rebuild_index(resources).position_before(offset - self.base_offset)
        return find_batch(disk, file.fd, position, self.size, offset)

    def _is_indexed_at(self, relative_offset: int, position: int, resources: StorageResources) -> bool:
        """Is the indexed batch really there? Not asked where this process itself made the entry."""
        if self.file is not None and position >= self.own_index_from:
            return True
        file = self.open_file(resources)
        data = resources.env.disk.pread(file.fd, HEADER_SIZE, position)
        return len(data) == HEADER_SIZE and parse_header(data).last_offset - self.base_offset == relative_offset

    def largest_timestamp(self, resources: StorageResources) -> tuple[int, int]:
        """(timestamp, last offset of its batch) of the latest record; (-1, -1) if no record has a timestamp."""
        if self.max_timestamp == UNKNOWN:
            index = self.load_index(resources)
            if index.timestamps:
                self.max_timestamp = index.timestamps[-1]
                self.max_timestamp_offset = self.base_offset + index.time_offsets[-1]
            else:
                self.rebuild_index(resources)
        return self.max_timestamp, self.max_timestamp_offset

    def truncate(self, place: BatchPlace, end_offset: int, resources: StorageResources) -> None:
        """Cut this active segment before a batch."""
        assert self.file is not None
        resources.env.disk.truncate(self.file.fd, place.position)
        # On the device before anything is written in its place: after a loss of power the old batches could come
        # back between the new ones, each of them whole.
        resources.env.disk.fsync(self.file.fd)
        self.size = place.position
        index = self.load_index(resources)
        index.truncate(end_offset - self.base_offset, place.position)
        self.last_index_position = index.last_position
        if self.has_aborted:
            self.aborted(resources).truncate(resources.env.disk, self.path(TRANSACTION_INDEX), end_offset)
        self.index_full = False
        self.last_batch_offset = UNKNOWN
        self._find_tail(resources)
        # At once: entries of what is gone must never be taken for those of what comes in its place.
        self.save_index(resources, final=False)

    def _find_tail(self, resources: StorageResources) -> None:
        """After a cut: the largest timestamp may be gone, so look at what follows the last index entry."""
        index = self.load_index(resources)
        self.max_timestamp, self.max_timestamp_offset = index.last_timestamp, -1
        if index.timestamps:
            self.max_timestamp_offset = self.base_offset + index.time_offsets[-1]
        file = self.open_file(resources)
        # The time entry beside an offset entry covers only what came up to it, its own batch included.
        for position, header in scan_headers(resources.env.disk, file.fd, index.last_position, self.size):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
            self.note_last_batch(position, header)
        if not self.size:
            self.first_timestamp = -1

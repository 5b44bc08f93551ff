"""Transactions as compaction sees them: aborted data goes, markers stay while anything of theirs is left.

    .txnindex    entries of 34 bytes: version int16 (0) · producerId int64 · firstOffset int64 · lastOffset int64 ·
                 lastStableOffset int64, one for each aborted transaction, in the segment where it ended

A marker may only go when no batch of its transaction is left, and then not before its delete horizon: a reader
that is in the middle of the log must still learn how the transaction ended. Markers have keys of their own and are
never compared with the keys of data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from headrace.env import Disk
from headrace.model.errors import KafkaError
from headrace.records.batch import TRANSACTIONAL, BatchHeader
from headrace.records.reader import read_records
from headrace.storage.files import read_file

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_MARKER_KEY = struct.Struct(">hh")
"""version · type, the key of the record in a control batch"""
_ABORT, _COMMIT = 0, 1


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_transaction_index(disk: Disk, path: str) -> list[AbortedTransaction]:
    """The entries of an index file; none if there is no file. A part of an entry at the end is not one."""
    try:
        data = read_file(disk, path)
    except FileNotFoundError:
        return []
    whole = len(data) - len(data) % _ENTRY.size
    rows = _ENTRY.iter_unpack(memoryview(data)[:whole])
    return [AbortedTransaction(*fields) for version, *fields in rows if version == _VERSION]


def encode_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


class TransactionView:
    """Follows the transactions of a log through its batches, in order, knowing which were aborted."""

    __slots__ = ("_aborted", "_committed", "_open_aborted", "_seen", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._open_aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        """Producers of open aborted transactions of which a batch was met."""
        self._committed: set[int] = set()
        """Producers of other open transactions of which a batch was met."""
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions that ended and of which a batch was met: what the new segment's index holds."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a data batch: is it part of a transaction that was aborted?"""
        if not header.attributes & TRANSACTIONAL:
            return False
        self._open_up_to(header.last_offset)
        transaction = self._open_aborted.get(header.producer_id)
        if transaction is not None and header.base_offset <= transaction.last_offset:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_spent(self, header: BatchHeader, batch: bytes | memoryview) -> bool:
        """Take note of a control batch: is nothing left of the transaction that it ended?"""
        self._open_up_to(header.last_offset)
        kind = _marker_type(batch)
        if kind is None:
            return not header.record_count
        producer_id = header.producer_id
        if kind == _ABORT:
            transaction = self._open_aborted.pop(producer_id, None)
            if transaction is None or producer_id not in self._seen:
                return True
            self._seen.discard(producer_id)
            self.kept.append(transaction)
            return False
        if kind == _COMMIT:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_met
        return False

    def _open_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            transaction = self._aborted.pop()
            self._open_aborted[transaction.producer_id] = transaction


def _marker_type(batch: bytes | memoryview) -> int | None:
    """ABORT, COMMIT or another type of control record; None for a batch without a readable one."""
    try:
        record = next(iter(read_records(batch)), None)
    except KafkaError:
        return None
    if record is None or record.key is None or len(record.key) < _MARKER_KEY.size:
        return None
    return int(_MARKER_KEY.unpack_from(record.key)[1])

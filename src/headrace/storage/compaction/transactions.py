"""Transactions as compaction sees them: aborted data goes, markers stay while anything of theirs is left.

A marker may only go when no batch of its transaction is left, and then not before its delete horizon: a reader
that is in the middle of the log must still learn how the transaction ended. Markers have keys of their own and are
never compared with the keys of data.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.records.batch import TRANSACTIONAL, BatchHeader
from headrace.records.markers import ABORT, COMMIT, read_marker
from headrace.storage.transaction_index import AbortedTransaction


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
        kind, _ = read_marker(batch)
        if kind is None:
            return not header.record_count
        producer_id = header.producer_id
        if kind == ABORT:
            transaction = self._open_aborted.pop(producer_id, None)
            if transaction is None or producer_id not in self._seen:
                return True
            self._seen.discard(producer_id)
            self.kept.append(transaction)
            return False
        if kind == COMMIT:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_met
        return False

    def _open_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            transaction = self._aborted.pop()
            self._open_aborted[transaction.producer_id] = transaction

"""What a partition remembers of its producers: no duplicate stored, no gap accepted, zombies fenced (R-PRO-3).

Rules (Kafka's):
- A batch continues its producer's sequence (2^31-1 is followed by 0), or repeats one of the last five batches:
  then it is a duplicate and is answered with the offset it already has.
- A producer the partition does not know may begin anywhere: what it wrote before may have been deleted.
- An older epoch than the known one is refused; a newer one begins at sequence 0.
- `check` decides and changes nothing; `apply` changes and cannot fail. Followers and recovery only apply.

Transactions: a transactional batch opens one for its producer, a control batch ends it. The first that is open, or
whose end is not below the high watermark yet and so may still be lost, bounds the last stable offset.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.limits import MAX_PRODUCERS_PER_PARTITION
from headrace.records.batch import CONTROL, NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from headrace.storage.producer_snapshot import SnapshotEntry

KEPT_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1
NO_TRANSACTION = -1
NO_COORDINATOR_EPOCH = -1


class BatchMark(NamedTuple):
    """One batch of a producer, enough to recognise it when it comes again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = -1
        self.transaction_first_offset = NO_TRANSACTION
        self.batches: list[BatchMark] = []
        """The last five of this epoch, the oldest first; empty if it only ended transactions."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerDescription(NamedTuple):
    """A row of DescribeProducers."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


class ProducerStates:
    __slots__ = ("_ended_transactions", "_entries", "_open_transactions")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._open_transactions: dict[int, int] = {}
        """Where each producer's open transaction begins; asked for by every read_committed fetch."""
        self._ended_transactions: deque[tuple[int, int]] = deque()
        """Where a transaction began and where its marker is, in the order of the markers, until all in-sync
        replicas have the marker."""

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, header: BatchHeader) -> BatchMark | None:
        """May this batch of a producer be appended? The earlier batch if it is a duplicate."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch == entry.epoch:
            expected = (entry.last_sequence + 1) & MAX_SEQUENCE
            if header.base_sequence == expected:
                return None
            return self._check_repeated(header, entry, expected)
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {header.producer_epoch} of producer {header.producer_id} is smaller than "
                f"the last seen epoch {entry.epoch}",
            )
        if header.base_sequence != 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} began its epoch {header.producer_epoch} with sequence "
                f"{header.base_sequence} instead of 0",
            )
        return None

    def _check_repeated(self, header: BatchHeader, entry: ProducerEntry, expected: int) -> BatchMark:
        for mark in entry.batches:
            if mark.base_sequence == header.base_sequence and mark.offset_delta == header.last_offset_delta:
                return mark
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id} sent sequence {header.base_sequence} where {expected} was expected",
        )

    def apply(self, header: BatchHeader, base_offset: int) -> None:
        """Remember a batch that was stored at `base_offset`."""
        assert not header.attributes & CONTROL
        entry = self._entry(header)
        delta = header.last_offset_delta
        last_sequence = (header.base_sequence + delta) & MAX_SEQUENCE
        batches = entry.batches
        batches.append(BatchMark(last_sequence, base_offset + delta, delta, header.max_timestamp))
        if len(batches) > KEPT_BATCHES:
            del batches[0]
        entry.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL and entry.transaction_first_offset == NO_TRANSACTION:
            entry.transaction_first_offset = self._open_transactions[header.producer_id] = base_offset

    def apply_marker(self, header: BatchHeader, coordinator_epoch: int) -> int:
        """Remember the end of a transaction; where it began, or NO_TRANSACTION if it wrote nothing here."""
        entry = self._entry(header)
        first_offset = entry.transaction_first_offset
        if first_offset != NO_TRANSACTION:
            entry.transaction_first_offset = NO_TRANSACTION
            del self._open_transactions[header.producer_id]
            self._ended_transactions.append((first_offset, header.last_offset))
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        return first_offset

    def _entry(self, header: BatchHeader) -> ProducerEntry:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            if len(self._entries) >= MAX_PRODUCERS_PER_PARTITION:
                self._forget_oldest()
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        return entry

    def _forget_oldest(self) -> None:
        """Make room: a tenth of those without a transaction go, the ones that were silent longest."""
        idle = [
            (entry.last_timestamp, producer_id)
            for producer_id, entry in self._entries.items()
            if entry.transaction_first_offset == NO_TRANSACTION
        ]
        for _, producer_id in sorted(idle)[: max(len(idle) // 10, 1)]:
            del self._entries[producer_id]

    def first_open_transaction(self) -> int:
        """The offset where the oldest open transaction begins, or NO_TRANSACTION."""
        return min(self._open_transactions.values(), default=NO_TRANSACTION)

    def first_unstable_offset(self, high_watermark: int) -> int:
        """Where the oldest transaction begins that is open or whose marker may be lost, or NO_TRANSACTION."""
        self.committed_to(high_watermark)
        first = self.first_open_transaction()
        for began, _ in self._ended_transactions:
            first = began if first == NO_TRANSACTION else min(first, began)
        return first

    def committed_to(self, high_watermark: int) -> None:
        """Markers below the high watermark stay: forget the transactions they ended."""
        ended = self._ended_transactions
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that wrote nothing for so long and have no transaction open."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.transaction_first_offset == NO_TRANSACTION and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]

    def describe(self) -> list[ProducerDescription]:
        return [
            ProducerDescription(
                producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
            for producer_id, entry in self._entries.items()
        ]

    def snapshot(self) -> list[SnapshotEntry]:
        return [self._snapshot_entry(producer_id, entry) for producer_id, entry in self._entries.items()]

    def _snapshot_entry(self, producer_id: int, entry: ProducerEntry) -> SnapshotEntry:
        mark = entry.batches[-1] if entry.batches else BatchMark(NO_SEQUENCE, -1, 0, entry.last_timestamp)
        return SnapshotEntry(
            producer_id,
            entry.epoch,
            mark.last_sequence,
            mark.last_offset,
            mark.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )

    def load(self, entries: list[SnapshotEntry]) -> None:
        """Begin from a snapshot: of each producer only the last batch is known then."""
        assert not self._entries
        for row in entries:
            entry = self._entries[row.producer_id] = ProducerEntry(row.epoch)
            entry.coordinator_epoch = row.coordinator_epoch
            entry.last_timestamp = row.timestamp
            entry.transaction_first_offset = row.transaction_first_offset
            if row.transaction_first_offset != NO_TRANSACTION:
                self._open_transactions[row.producer_id] = row.transaction_first_offset
            if row.last_offset >= 0:
                mark = BatchMark(row.last_sequence, row.last_offset, row.offset_delta, row.timestamp)
                entry.batches.append(mark)

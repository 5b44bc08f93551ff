"""What a partition remembers of its producers: no duplicate stored, no gap accepted, zombies fenced (R-PRO-3).

Rules (Kafka's):
- A batch continues its producer's sequence (2^31-1 is followed by 0), or repeats one of the last five batches:
  then it is a duplicate and is answered with the offset it already has.
- A producer the partition does not know may begin anywhere: what it wrote before may have been deleted.
- An older epoch than the known one is refused; a newer one begins at sequence 0.
- `check` decides and changes nothing; `apply` changes and cannot fail. Followers and recovery only apply.

Transactions: a transactional batch opens one for its producer, a control batch (a marker) ends it. The first that
is open, or whose marker is not below the high watermark yet and so may be lost, bounds the last stable offset.

A batch opens a transaction only with a guard (KIP-890): it is handed out before the coordinator is asked whether
the partition is a part of the transaction, and a marker that comes before the batch makes it void. So a batch that
was on its way for long opens nothing after its own transaction was ended.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.limits import MAX_PRODUCERS_PER_PARTITION
from headrace.records.batch import CONTROL, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from headrace.records.markers import NO_COORDINATOR_EPOCH, EndMarker
from headrace.storage.producer_snapshot import SnapshotEntry

KEPT_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1
NO_TRANSACTION = -1
HEARD = -1
EPOCH_BUMPS_SINCE = 2
"""The version of transactions (KIP-890) since which every end of a transaction takes a new epoch."""


class BatchMark(NamedTuple):
    """A batch of a producer, with enough to recognise it when it is repeated."""

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
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "silent_since",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = -1
        self.silent_since = HEARD
        """The time, by this broker's clock, since which the producer is known to be silent."""
        self.transaction_first_offset = NO_TRANSACTION
        self.batches: list[BatchMark] = []
        """The last five of this epoch, the oldest first; empty if it only ended transactions."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class VerificationGuard:
    """The right of a producer's epoch to open a transaction here, once; compared by identity."""

    __slots__ = ("bumps_epochs", "lowest_sequence", "producer_epoch", "refused", "since_ms")

    def __init__(self, producer_epoch: int, base_sequence: int, bumps_epochs: bool, now_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        """The lowest sequence of all batches that requested it: no later one may be the first to be stored."""
        self.bumps_epochs = bumps_epochs
        self.since_ms = now_ms
        self.refused = False
        """Whether the coordinator does not know this epoch as its producer's: its own may be lower."""

    def outlives(self, marker_epoch: int) -> bool:
        """Whether a marker in that epoch ends an earlier transaction than the one that this guard is for.

        With new epochs at every end the marker of the transaction before has the epoch of this one. It comes late
        where a leader changed: the coordinator agrees to this transaction once that marker is written.
        """
        return self.bumps_epochs and marker_epoch <= self.producer_epoch


class ProducerDescription(NamedTuple):
    """A row of DescribeProducers."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


class ProducerStates:
    __slots__ = ("_ended_transactions", "_entries", "_guards", "_open_transactions")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._guards: dict[int, VerificationGuard] = {}
        self._open_transactions: dict[int, int] = {}
        """The producer of each open transaction, by the offset at which it begins, in this order."""
        self._ended_transactions: deque[tuple[int, int]] = deque()
        """The first offset of ended transactions and the offset of their markers, in the order of the markers,
        until all in-sync replicas have the marker."""

    def __len__(self) -> int:
        return len(self._entries)

    def knows(self, producer_id: int) -> bool:
        return producer_id in self._entries

    def check(self, header: BatchHeader, guard: VerificationGuard | None = None) -> BatchMark | None:
        """Check whether a batch of a producer may be appended; returns the earlier batch if it is a duplicate."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            if header.attributes & TRANSACTIONAL:
                self._check_transaction(header, None, guard)
            return None
        if header.producer_epoch == entry.epoch:
            expected = (entry.last_sequence + 1) & MAX_SEQUENCE
            if header.base_sequence != expected:
                return self._check_repeated(header, entry, expected)
        else:
            self._check_epoch(header, entry)
        if header.attributes & TRANSACTIONAL or entry.transaction_first_offset != NO_TRANSACTION:
            self._check_transaction(header, entry, guard)
        return None

    def check_unsequenced(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Check a transactional batch that the broker itself writes for a producer: it has no sequence."""
        entry = self._entries.get(header.producer_id)
        if entry is not None:
            self._check_not_fenced(header.producer_id, header.producer_epoch, entry)
        self._check_verified(header, entry, guard)

    def _check_not_fenced(self, producer_id: int, producer_epoch: int, entry: ProducerEntry) -> None:
        if producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {producer_epoch} of producer {producer_id} is smaller than "
                f"the last seen epoch {entry.epoch}",
            )

    def _check_epoch(self, header: BatchHeader, entry: ProducerEntry) -> None:
        """Check a batch whose epoch is not the known one."""
        self._check_not_fenced(header.producer_id, header.producer_epoch, entry)
        if header.base_sequence != 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} began its epoch {header.producer_epoch} with sequence "
                f"{header.base_sequence} instead of 0",
            )

    def _check_transaction(
        self, header: BatchHeader, entry: ProducerEntry | None, guard: VerificationGuard | None
    ) -> None:
        """Check a batch in sequence that is transactional, or whose producer has an open transaction here."""
        if not header.attributes & TRANSACTIONAL:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has a transaction open here, and the batch is not part of it",
            )
        self._check_verified(header, entry, guard)
        known = self._guards.get(header.producer_id)
        if known is None or known.producer_epoch != header.producer_epoch:
            return
        begins_anew = known.bumps_epochs and (entry is None or not entry.batches)
        expected = 0 if begins_anew else known.lowest_sequence
        if header.base_sequence > expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} sent sequence {header.base_sequence} before {expected}",
            )

    def _check_verified(
        self, header: BatchHeader, entry: ProducerEntry | None, guard: VerificationGuard | None
    ) -> None:
        if entry is not None and self._is_open(entry, header.producer_epoch):
            return
        known = self._guards.get(header.producer_id)
        if guard is None or guard is not known or guard.producer_epoch != header.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"The batch of producer {header.producer_id} is not part of an open transaction",
            )

    def _check_repeated(self, header: BatchHeader, entry: ProducerEntry, expected: int) -> BatchMark:
        for mark in entry.batches:
            if mark.base_sequence == header.base_sequence and mark.offset_delta == header.last_offset_delta:
                return mark
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id} sent sequence {header.base_sequence} where {expected} was expected",
        )

    # Verification (KIP-890)

    @staticmethod
    def _is_open(entry: ProducerEntry, producer_epoch: int) -> bool:
        return entry.transaction_first_offset != NO_TRANSACTION and entry.epoch == producer_epoch

    def needs_verification(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the coordinator must be asked before a transactional batch is appended."""
        entry = self._entries.get(producer_id)
        return entry is None or not self._is_open(entry, producer_epoch)

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, bumps_epochs: bool, now_ms: int
    ) -> VerificationGuard | None:
        """The guard that the batch must have once the coordinator has agreed; None if it need not be asked."""
        if not self.needs_verification(producer_id, producer_epoch):
            return None
        guard = self._guards.get(producer_id)
        if guard is None or guard.producer_epoch < producer_epoch or _gives_way(guard, producer_epoch):
            guard = VerificationGuard(producer_epoch, base_sequence, bumps_epochs, now_ms)
            self._guards[producer_id] = guard
        elif guard.producer_epoch > producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {producer_epoch} of producer {producer_id} is smaller than "
                f"epoch {guard.producer_epoch}, which is about to write",
            )
        else:
            guard.refused = False
            guard.lowest_sequence = min(guard.lowest_sequence, base_sequence)
        return guard

    def check_marker(self, marker: EndMarker) -> None:
        """Check whether the coordinator may end a transaction with this marker.

        A later coordinator fences it, and the epoch fences the producer. With new epochs at every end the marker's
        epoch is above that of the records, so that a late marker of an earlier transaction does not end this one
        (KIP-1228). A marker that is repeated after it has done its work is accepted.

        UNKNOWN_SERVER_ERROR for an invalid producer id, as in Kafka.
        """
        entry = self._entries.get(marker.producer_id)
        if marker.producer_id == NO_PRODUCER_ID or (entry is None and marker.producer_epoch < 0):
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"No producer has id {marker.producer_id} and epoch {marker.producer_epoch}",
            )
        if entry is None:
            return
        self._check_not_fenced(marker.producer_id, marker.producer_epoch, entry)
        if marker.transaction_version >= EPOCH_BUMPS_SINCE and self._is_open(entry, marker.producer_epoch):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {marker.producer_epoch} of producer {marker.producer_id} is that of its open transaction; "
                "ending it needs a new epoch",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {marker.coordinator_epoch} for producer {marker.producer_id} is smaller than "
                f"{entry.coordinator_epoch}",
            )

    # Applying

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
        entry.silent_since = HEARD
        if header.attributes & TRANSACTIONAL:
            if header.base_sequence < 0:
                batches[-1] = BatchMark(NO_SEQUENCE, base_offset + delta, delta, header.max_timestamp)
            self._guards.pop(header.producer_id, None)
            if entry.transaction_first_offset == NO_TRANSACTION:
                entry.transaction_first_offset = base_offset
                self._open_transactions[base_offset] = header.producer_id

    def apply_marker(self, header: BatchHeader, coordinator_epoch: int) -> int:
        """Note the end of a transaction; returns where it began, or NO_TRANSACTION if it wrote nothing here."""
        entry = self._entry(header)
        guard = self._guards.get(header.producer_id)
        if guard is not None and not guard.outlives(header.producer_epoch):
            del self._guards[header.producer_id]
        first_offset = entry.transaction_first_offset
        if first_offset != NO_TRANSACTION:
            entry.transaction_first_offset = NO_TRANSACTION
            del self._open_transactions[first_offset]
            self._ended_transactions.append((first_offset, header.last_offset))
        entry.coordinator_epoch = max(coordinator_epoch, entry.coordinator_epoch)
        entry.last_timestamp = header.max_timestamp
        entry.silent_since = HEARD
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
        """Make room: forget a tenth of the producers without a transaction, those that were silent longest."""
        idle = [
            (entry.silent_since == HEARD, entry.silent_since, entry.last_timestamp, producer_id)
            for producer_id, entry in self._entries.items()
            if entry.transaction_first_offset == NO_TRANSACTION
        ]
        for *_, producer_id in sorted(idle)[: max(len(idle) // 10, 1)]:
            del self._entries[producer_id]

    @property
    def open_transactions(self) -> int:
        return len(self._open_transactions)

    def oldest_transaction_written_at(self) -> int | None:
        """The last write of the producer whose open transaction began first; None if none is open."""
        for producer_id in self._open_transactions.values():
            return self._entries[producer_id].last_timestamp
        return None

    @property
    def all_settled(self) -> bool:
        """Whether no transaction is open or waits for its marker to be committed."""
        return not self._open_transactions and not self._ended_transactions

    def first_open_transaction(self) -> int:
        """The offset where the oldest open transaction begins, or NO_TRANSACTION."""
        return next(iter(self._open_transactions), NO_TRANSACTION)

    def first_unstable_offset(self, high_watermark: int) -> int:
        """The start of the oldest transaction that is open or whose marker may be lost, or NO_TRANSACTION."""
        self.committed_to(high_watermark)
        first = self.first_open_transaction()
        for began, _ in self._ended_transactions:
            first = began if first == NO_TRANSACTION else min(first, began)
        return first

    def committed_to(self, high_watermark: int) -> None:
        """Forget the transactions whose markers are below the high watermark: these can no longer be lost."""
        ended = self._ended_transactions
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have not written for that long and have no open transaction.

        The timestamps of their records do not count: they may be years old. A producer is silent since the first
        check that finds nothing new.
        """
        expired = []
        for producer_id, entry in self._entries.items():
            if entry.silent_since == HEARD:
                entry.silent_since = now_ms
            is_silent = now_ms - entry.silent_since >= expiration_ms
            if is_silent and entry.transaction_first_offset == NO_TRANSACTION:
                expired.append(producer_id)
        for producer_id in expired:
            del self._entries[producer_id]
        stale = [one for one, guard in self._guards.items() if now_ms - guard.since_ms >= expiration_ms]
        for producer_id in stale:
            del self._guards[producer_id]

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
        """A row for each remembered batch, those of a producer in their order.

        Kafka writes the last one only, and after a restart takes a repeated batch before it for a gap, upon which
        clients begin a new epoch and send it again: a duplicate. Readers that expect one row keep the last.
        """
        return [row for producer_id, entry in self._entries.items() for row in _snapshot_rows(producer_id, entry)]

    def load(self, rows: list[SnapshotEntry]) -> None:
        """Start from a snapshot."""
        assert not self._entries
        for row in rows:
            entry = self._entries.get(row.producer_id)
            if entry is None or entry.epoch != row.epoch:
                entry = self._entries[row.producer_id] = ProducerEntry(row.epoch)
            entry.coordinator_epoch = row.coordinator_epoch
            entry.last_timestamp = row.timestamp
            entry.transaction_first_offset = row.transaction_first_offset
            if row.last_offset >= 0:
                mark = BatchMark(row.last_sequence, row.last_offset, row.offset_delta, row.timestamp)
                entry.batches = [*entry.batches, mark][-KEPT_BATCHES:]
        began = sorted((entry.transaction_first_offset, one) for one, entry in self._entries.items())
        self._open_transactions = {first: producer_id for first, producer_id in began if first != NO_TRANSACTION}


def _gives_way(guard: VerificationGuard, producer_epoch: int) -> bool:
    return guard.refused and guard.producer_epoch > producer_epoch


def _snapshot_rows(producer_id: int, entry: ProducerEntry) -> list[SnapshotEntry]:
    marks = entry.batches or [BatchMark(NO_SEQUENCE, -1, 0, entry.last_timestamp)]
    return [
        SnapshotEntry(
            producer_id,
            entry.epoch,
            mark.last_sequence,
            mark.last_offset,
            mark.offset_delta,
            entry.last_timestamp if mark is marks[-1] else mark.timestamp,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for mark in marks
    ]

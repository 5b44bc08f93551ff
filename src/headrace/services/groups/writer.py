"""Decisions on their way into the log: many in one batch, each released when it is where the promise says.

What is handed over during one turn of the loop is appended together, in order, as one batch (several if they would
be larger than the topic allows). `group.coordinator.append.linger.ms` can make that a time: at its end, or when a
batch is full, all is appended that has come; 0 appends each decision at once. A decision is done once the high
watermark is past its batch: with this broker as the only replica at once, otherwise when the in-sync replicas have
it. All that share a batch share its fate.

A batch that was appended is never given up while this broker leads: it may yet be replicated, and then it has
happened. After `timeout_ms` its requests are told that the outcome is unknown; the decisions are applied when it
is.

Positions that are a part of a transaction have a batch of their own, with the id and epoch of their producer, and
so has the marker that ends it. All that was handed over before them is appended before them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headrace.env import Clock
from headrace.env.env import Timer
from headrace.groups.events import Event
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import HEADER_SIZE, TRANSACTIONAL
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.records.markers import EndMarker
from headrace.replication.partition import Partition
from headrace.services.groups.records import encode
from headrace.services.groups.settings import ShellSettings
from headrace.storage.producer_state import VerificationGuard

log = logging.getLogger(__name__)

RECORD_OVERHEAD = 32
"""An upper bound for the lengths, deltas and attributes of a record."""
MAX_BATCH_BYTES = 512 * 1024


class DecisionWaiter(Protocol):
    """A caller that waits for a decision to be stored."""

    def stored(self) -> None:
        """The decision is stored: apply it."""

    def failed(self, error: ErrorCode) -> None:
        """The decision is not stored and will not be."""

    def delayed(self, error: ErrorCode) -> None:
        """It may still be stored, but callers should not be kept waiting."""

    def lost(self) -> None:
        """Our own code failed: only the log shows whether it is stored."""


_new_tuple = tuple.__new__
"""Creates a named tuple without a call into Python: every commit uses it."""


class Write(Protocol):
    """Records that are stored together, or not at all."""

    @property
    def records(self) -> list[NewRecord]: ...

    @property
    def size(self) -> int:
        """The size of the records, including the overhead of each."""

    @property
    def outcome(self) -> DecisionWaiter: ...


class _Write(NamedTuple):
    records: list[NewRecord]
    size: int
    outcome: DecisionWaiter


@dataclass(slots=True)
class _Appended:
    end_offset: int
    deadline: float
    outcomes: list[DecisionWaiter]
    overdue: bool = False


class DecisionWriter:
    def __init__(self, clock: Clock, partition: Partition, settings: ShellSettings) -> None:
        self._clock = clock
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._codec = settings.codec
        self._timeout = settings.commit_timeout_ms / 1000
        self._linger_ms = settings.append_linger_ms
        self.flushes = 0
        """The number of flushes: everything that came before a flush is on its way."""
        self._queue: list[Write] = []
        self._queued_bytes = 0
        self._flush_timer: Timer | None = None
        self._appended: deque[_Appended] = deque()
        """Appended batches in the order of the log, the first one not yet replicated."""
        self._alarm: Timer | None = None
        self._closed = False

    def write(self, events: Iterable[Event], now_ms: int, outcome: DecisionWaiter) -> None:
        """Store a decision's records; `outcome` is notified, during this call if nothing is collected."""
        records: list[NewRecord] = []
        size = add_records(records, events, now_ms)
        self.write_records(records, size, outcome)

    def write_records(self, records: list[NewRecord], size: int, outcome: DecisionWaiter) -> None:
        """Like `write`, with existing records and their size, including the overhead of each."""
        self.add(_new_tuple(_Write, (records, size, outcome)))

    def add(self, write: Write) -> None:
        """Like `write`, for an existing `Write`. Until the next flush it may grow (`grown`)."""
        first = not self._queue
        self._queue.append(write)
        self._queued_bytes += write.size
        if self._linger_ms < 0:
            if first:
                self._clock.call_soon(self._flush)
        elif self._linger_ms == 0 or self._queued_bytes >= self.batch_limit():
            self._flush()
        elif first:
            self._flush_timer = self._clock.call_later(self._linger_ms / 1000, self._flush)

    def grown(self, size: int) -> None:
        """Note that a write in the queue has grown."""
        self._queued_bytes += size
        if self._linger_ms >= 0 and self._queued_bytes >= self.batch_limit():
            self._flush()

    def flush(self) -> None:
        """Append now everything that has come."""
        if self._queue:
            self._flush()

    def write_for_producer(
        self,
        events: Iterable[Event],
        now_ms: int,
        producer: ProducerStamp,
        guard: VerificationGuard | None,
        outcome: DecisionWaiter,
    ) -> None:
        """Store a decision's records as a part of a producer's transaction: in a batch of their own, at once."""
        records = [NewRecord(value, key, now_ms) for key, value in map(encode, events)]
        batch = build_batch(records, codec=self._codec, attributes=TRANSACTIONAL, producer=producer)
        self._flush()

        def append() -> int:
            return self._partition.append_unsequenced(batch, guard) + len(records)

        self._store([outcome], append)

    def write_marker(self, marker: EndMarker, outcome: DecisionWaiter) -> None:
        """Store the end of a producer's transaction."""
        self._flush()
        self._store([outcome], lambda: self._partition.append_marker(marker))

    def close(self) -> None:
        """This broker no longer leads: decisions that were not replicated have not happened as far as we know."""
        self._closed = True
        for timer in (self._alarm, self._flush_timer):
            if timer is not None:
                timer.cancel()
        self._give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _give_up(self, error: ErrorCode) -> None:
        self._partition.waiters.pop(self, None)
        appended, self._appended = self._appended, deque()
        queue, self._queue = self._queue, []
        self._queued_bytes = 0
        self.flushes += 1
        for outcome in [
            *(one for batch in appended for one in batch.outcomes),
            *(write.outcome for write in queue),
        ]:
            outcome.failed(error)

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        queue, size, limit = self._queue, self._queued_bytes, self.batch_limit()
        self._queue, self._queued_bytes = [], 0
        self.flushes += 1
        for writes in [queue] if HEADER_SIZE + size <= limit and queue else _packed(queue, limit):
            self._append(writes)

    def batch_limit(self) -> int:
        """The size of a batch, header included, that the log takes."""
        return min(self._partition.log.config.max_message_bytes, MAX_BATCH_BYTES)

    def _append(self, writes: list[Write]) -> None:
        records = (
            writes[0].records if len(writes) == 1 else [record for write in writes for record in write.records]
        )

        def append() -> int:
            return self._partition.append_own(build_batch(records, codec=self._codec)) + len(records)

        self._store([write.outcome for write in writes], append)

    def _store(self, outcomes: list[DecisionWaiter], append: Callable[[], int]) -> None:
        """Append the records of `outcomes` with `append`, which returns the end offset."""
        try:
            if self._closed or not self._leads():
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            end_offset = append()
        except KafkaError as error:
            for outcome in outcomes:
                outcome.failed(error.code)
            return
        except Exception:
            log.exception("Decisions about groups could not be appended to %s", self._partition.topic_partition)
            for outcome in outcomes:
                outcome.lost()
            return
        if not self._appended and self._partition.high_watermark >= end_offset:
            for outcome in outcomes:
                outcome.stored()
            return
        self._appended.append(_Appended(end_offset, self._clock.monotonic() + self._timeout, outcomes))
        self._partition.waiters[self] = None
        self._set_alarm()

    def _leads(self) -> bool:
        return self._partition.is_leader and self._partition.leader_epoch == self._leader_epoch

    # -- waiting for replicas

    def wake(self) -> None:
        """The high watermark moved, the log failed, or the partition has another leader."""
        if self._closed or not self._leads():
            return  # the owner learns of the change of leader, and closes it
        if self._partition.log.failure is not None:
            self._give_up(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        while self._appended and self._appended[0].end_offset <= self._partition.high_watermark:
            for outcome in self._appended.popleft().outcomes:
                outcome.stored()
        if not self._appended:
            self._partition.waiters.pop(self, None)

    def failed(self, error: Exception) -> None:
        self._give_up(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _set_alarm(self) -> None:
        first = next((batch for batch in self._appended if not batch.overdue), None)
        if self._alarm is None and first is not None:
            delay = max(first.deadline - self._clock.monotonic(), 0)
            self._alarm = self._clock.call_later(delay, self._look_for_overdue)

    def _look_for_overdue(self) -> None:
        self._alarm = None
        now = self._clock.monotonic()
        late = [batch for batch in self._appended if not batch.overdue and batch.deadline <= now]
        for batch in late:
            batch.overdue = True
            for outcome in batch.outcomes:
                outcome.delayed(ErrorCode.REQUEST_TIMED_OUT)
        self._set_alarm()


def add_records(records: list[NewRecord], events: Iterable[Event], now_ms: int) -> int:
    """Append the records of `events` to `records`; returns an upper bound of what they add to a batch."""
    size = 0
    for event in events:
        key, value = encode(event)
        records.append(_new_tuple(NewRecord, (value, key, now_ms, ())))
        size += len(key) + RECORD_OVERHEAD + (0 if value is None else len(value))
    return size


def _packed(writes: Iterable[Write], limit: int) -> Iterator[list[Write]]:
    """As many writes together as fit, in order; one that is too large by itself is left to the log to refuse."""
    together: list[Write] = []
    size = HEADER_SIZE
    for write in writes:
        if together and size + write.size > limit:
            yield together
            together, size = [], HEADER_SIZE
        together.append(write)
        size += write.size
    if together:
        yield together

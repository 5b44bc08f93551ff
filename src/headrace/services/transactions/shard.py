"""The transactional ids of one partition of `__transaction_state`, on the broker that leads it.

A shard lives as long as this broker leads its partition in one epoch, which is the *coordinator epoch* that
markers carry. It serves once it has applied the log and the in-sync replicas have all of it.

A decision is stored, replicated, applied, answered, in this order. One id has one decision on its way at a time:
requests for it that come meanwhile wait for a moment, and are told CONCURRENT_TRANSACTIONS if that is not enough,
as Kafka tells them at once. Once the end of a transaction is applied its markers go out (`markers.py`), and when
the last one is written the end is stored as complete.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from headrace.env import Env
from headrace.groups.errors import append_error
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.records.builder import NewRecord
from headrace.replication.partition import Partition
from headrace.services.groups.loading import load_log
from headrace.services.groups.writer import RECORD_OVERHEAD, DecisionWriter
from headrace.services.shards import ShardState
from headrace.services.transactions.encoding import encode_key, encode_transaction
from headrace.services.transactions.records import decode_transactions
from headrace.services.transactions.settings import TransactionSettings
from headrace.transactions.decision import TransactionDecision, refuse
from headrace.transactions.ending import completed, timed_out
from headrace.transactions.states import ENDING, IDLE, TransactionState
from headrace.transactions.transaction import Transaction, check_transition

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.1
"""How long a request waits for a decision, or an end, that is under way."""
RETRY_SECONDS = 0.5
"""Before the completion of a transaction is stored again, where that failed."""
IDS_PER_TURN = 1000
"""Looked at by the expiry before others get their turn."""
NEVER = float("inf")

Decider = Callable[[Transaction | None, int | None, int], TransactionDecision]
"""Decides on the transaction, a new producer id where one was asked for, and the wall time."""
DecisionTold = Callable[[TransactionDecision, ErrorCode], None]
"""Hears of a decision once it is applied, or that it could not be, or not in time."""
Told = Callable[[ErrorCode], None]
T = TypeVar("T")


class MarkerOwner(Protocol):
    """Whose transaction it is that ends."""

    @property
    def leader_epoch(self) -> int: ...

    def awaits_markers(self, ending: Transaction) -> bool:
        """Whether this end is still the last word on its transaction, for this owner to carry out."""
        ...

    def markers_written(self, ending: Transaction) -> None: ...


class MarkerOutbox(Protocol):
    def send(self, owner: MarkerOwner, ending: Transaction) -> None:
        """Have a marker written by each partition; tell the owner once all are."""


class TransactionShard:
    def __init__(
        self,
        env: Env,
        partition: Partition,
        settings: TransactionSettings,
        allocate_producer_id: Callable[[], Awaitable[int]],
        markers: MarkerOutbox,
        load_slots: asyncio.Semaphore,
    ) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = ShardState.LOADING
        self._env = env
        self._settings = settings
        self._allocate_producer_id = allocate_producer_id
        self._markers = markers
        self._load_slots = load_slots
        self._writer = DecisionWriter(env.clock, partition, settings.shell)
        self._loading: asyncio.Task[None] | None = None
        self._transactions: dict[str, Transaction] = {}
        self._open: dict[str, float] = {}
        """The ids with an open transaction, and when on the monotonic clock it is aborted."""
        self._writing: set[str] = set()
        """The ids with a decision on its way into the log."""
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    # -- life

    def start(self) -> None:
        """Load in the background; an empty partition is ready at once."""
        if self.partition.log.start_offset == self.partition.log.end_offset:
            self.state = ShardState.ACTIVE
        else:
            self._loading = self._env.background.start(f"Loading {self.name}", self._load())

    async def _load(self) -> None:
        async with self._load_slots:
            began = self._env.clock.monotonic()
            count = 0
            try:
                buffer_bytes = self._settings.shell.load_buffer_bytes
                async for loaded in load_log(self._env, self.partition, buffer_bytes, decode_transactions):
                    for transactional_id, transaction in loaded:
                        self._note(transactional_id, transaction)
                    count += len(loaded)
            except (KafkaError, ProtocolError, OSError) as error:
                self.state = ShardState.FAILED
                log.error("%s could not be loaded, its transactions have no coordinator: %s", self.name, error)
                return
            except Exception:
                self.state = ShardState.FAILED
                log.exception("%s could not be loaded, its transactions have no coordinator", self.name)
                return
        self.state = ShardState.ACTIVE
        for transaction in list(self._transactions.values()):
            self._follow_up(transaction)
        took_ms = (self._env.clock.monotonic() - began) * 1000
        ids = len(self._transactions)
        log.info("Loaded %d transactional ids from %d records of %s in %.0f ms", ids, count, self.name, took_ms)

    def resign(self) -> None:
        """No longer the coordinator: waiting clients are sent to look for the new one."""
        self.state = ShardState.RESIGNED
        if self._loading is not None:
            self._loading.cancel()
        self._writer.close()
        for transactional_id in list(self._waiting):
            self._wake(transactional_id)

    def _read_anew(self) -> None:
        """Our own code failed: what has happened is only to be found in the log."""
        if self.state is not ShardState.ACTIVE:
            return
        self.state = ShardState.LOADING
        self._writer.close()
        self._writer = DecisionWriter(self._env.clock, self.partition, self._settings.shell)
        self._transactions.clear()
        self._open.clear()
        self._loading = self._env.background.start(f"Reloading {self.name}", self._load())

    @property
    def name(self) -> str:
        return f"{self.partition.topic_partition} (epoch {self.leader_epoch})"

    @property
    def in_charge(self) -> bool:
        return self.state is ShardState.ACTIVE

    # -- reading

    def transaction(self, transactional_id: str) -> Transaction | None:
        """As it was last stored; KafkaError while this shard is not in charge."""
        self._check_in_charge()
        self._check_not_replaced()
        return self._transactions.get(transactional_id)

    def transactions(self) -> Iterator[Transaction]:
        self._check_in_charge()
        yield from self._transactions.values()

    def prepared_count(self) -> int:
        return sum(self._transactions[transactional_id].prepared for transactional_id in self._open)

    def _check_not_replaced(self) -> None:
        """Before something is answered from memory: a coordinator of the past knows nothing of what came since."""
        if not self.partition.surely_leads:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def _check_in_charge(self) -> None:
        if self.state is not ShardState.ACTIVE:
            raise KafkaError(self.state.refusal)

    # -- deciding

    def quick_decide(
        self, transactional_id: str, decider: Decider, told: DecisionTold
    ) -> TransactionDecision | None:
        """What is decided now; None, with nothing done, if something has to be waited for first (`decide`).

        What changes something is on its way into the log, and `told` hears of it.
        """
        self._check_in_charge()
        if transactional_id in self._writing:
            return None
        decision = decider(self._transactions.get(transactional_id), None, self._env.clock.wall_ms())
        if decision.needs_producer_id or decision.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            return None
        if decision.changed is None:
            self._check_not_replaced()
        else:
            self._store(decision.changed, partial(told, decision))
        return decision

    async def decide(self, transactional_id: str, decider: Decider, patient: bool) -> TransactionDecision:
        """What was decided, stored; KafkaError if it could not be. `patient`: waits for an end under way."""
        clock = self._env.clock
        give_up_at = clock.monotonic() + PATIENCE_SECONDS
        new_id: int | None = None
        while True:
            self._check_in_charge()
            if transactional_id not in self._writing:
                decision = decider(self._transactions.get(transactional_id), new_id, clock.wall_ms())
                if decision.needs_producer_id:
                    assert new_id is None, "one is enough"
                    new_id = await self._allocate_producer_id()
                    continue
                ending = decision.error is ErrorCode.CONCURRENT_TRANSACTIONS and decision.changed is None
                if not (patient and ending):
                    break
            if not await self._settled(transactional_id, give_up_at):
                self._check_in_charge()
                return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        if decision.changed is not None:
            stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            self._store(decision.changed, partial(_finish, stored))
            error = await stored
            if error is not ErrorCode.NONE:
                raise KafkaError(error)
        else:
            self._check_not_replaced()
        return decision

    async def _settled(self, transactional_id: str, give_up_at: float) -> bool:
        """Wait until something was decided about the id; False if it takes too long."""
        left = give_up_at - self._env.clock.monotonic()
        if left <= 0:
            return False
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(transactional_id, [])
        waiting.append(settled)
        timer = self._env.clock.call_later(left, partial(_finish, settled, None))
        try:
            await settled
        finally:
            timer.cancel()
            if self._waiting.get(transactional_id) is waiting:
                waiting.remove(settled)
                if not waiting:
                    del self._waiting[transactional_id]
        return True

    def _wake(self, transactional_id: str) -> None:
        for settled in self._waiting.pop(transactional_id, ()):
            _finish(settled, None)

    def _store(self, changed: Transaction, told: Told) -> None:
        """`told` hears once it is applied, or when waiting for that takes too long."""
        transactional_id = changed.transactional_id
        check_transition(self._transactions.get(transactional_id), changed)
        self._write(transactional_id, encode_transaction(changed), changed, told)

    def _write(self, transactional_id: str, record: NewRecord, changed: Transaction | None, told: Told) -> None:
        assert transactional_id not in self._writing, "one decision at a time"
        self._writing.add(transactional_id)
        value, key, _, _ = record
        size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD
        self._writer.write_records([record], size, _Write(self, transactional_id, changed, told))

    def _stored(self, transactional_id: str, changed: Transaction | None) -> None:
        self._writing.discard(transactional_id)
        if self.state is ShardState.ACTIVE:
            self._note(transactional_id, changed)
            if changed is not None:
                self._follow_up(changed)
        self._wake(transactional_id)

    def _not_stored(self, transactional_id: str) -> None:
        self._writing.discard(transactional_id)
        self._wake(transactional_id)

    def _note(self, transactional_id: str, transaction: Transaction | None) -> None:
        """The only place where what is known changes."""
        if transaction is None:
            self._transactions.pop(transactional_id, None)
            self._open.pop(transactional_id, None)
            return
        self._transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            left_ms = transaction.time_left_ms(self._env.clock.wall_ms())
            due = NEVER if left_ms is None else self._env.clock.monotonic() + left_ms / 1000
            self._open[transactional_id] = due
        else:
            self._open.pop(transactional_id, None)

    # -- ends

    def _follow_up(self, transaction: Transaction) -> None:
        if transaction.state in ENDING:
            self._markers.send(self, transaction)

    def awaits_markers(self, ending: Transaction) -> bool:
        return self.in_charge and self._transactions.get(ending.transactional_id) is ending

    def markers_written(self, ending: Transaction) -> None:
        """Every partition has its marker: the end is complete once that is stored."""
        if not self.awaits_markers(ending):
            return
        done = completed(ending, self._env.clock.wall_ms())
        self._store(done, partial(self._completion_told, ending))

    def _completion_told(self, ending: Transaction, error: ErrorCode) -> None:
        if error is ErrorCode.NONE or not self.in_charge:
            return
        if ending.transactional_id not in self._writing:
            # Not stored, and not on its way any more. The markers are written; only this is left to do.
            self._env.clock.call_later(RETRY_SECONDS, partial(self.markers_written, ending))

    def abort_overdue(self) -> None:
        """Abort what has been open for longer than its producer asked for."""
        if self.state is not ShardState.ACTIVE:
            return
        now = self._env.clock.monotonic()
        for transactional_id, due in list(self._open.items()):
            if due <= now and transactional_id not in self._writing:
                transaction = self._transactions[transactional_id]
                log.info(
                    "Aborting the transaction of '%s': it has been open for longer than %d ms",
                    *(transactional_id, transaction.timeout_ms),
                )
                self._store(timed_out(transaction, self._env.clock.wall_ms()), _nobody)

    async def expire(self) -> None:
        """Forget ids that had no transaction for long."""
        if self.state is not ShardState.ACTIVE:
            return
        for number, transactional_id in enumerate(list(self._transactions), 1):
            transaction = self._transactions.get(transactional_id)
            now_ms = self._env.clock.wall_ms()
            if (
                transaction is not None
                and transaction.state in IDLE
                and transaction.updated_ms + self._settings.expiration_ms <= now_ms
                and transactional_id not in self._writing
            ):
                check_transition(transaction, None)
                self._write(transactional_id, NewRecord(None, encode_key(transactional_id), now_ms), None, _nobody)
            if number % IDS_PER_TURN == 0:
                await self._env.clock.sleep(0)
                if self.state is not ShardState.ACTIVE:
                    return


class _Write:
    """One decision on its way into the log."""

    __slots__ = ("_changed", "_shard", "_told", "_transactional_id")

    def __init__(
        self, shard: TransactionShard, transactional_id: str, changed: Transaction | None, told: Told
    ) -> None:
        self._shard = shard
        self._transactional_id = transactional_id
        self._changed = changed
        self._told: Told | None = told

    def stored(self) -> None:
        self._shard._stored(self._transactional_id, self._changed)
        self._tell(ErrorCode.NONE)

    def failed(self, error: ErrorCode) -> None:
        self._shard._not_stored(self._transactional_id)
        self._tell(append_error(error))

    def delayed(self, error: ErrorCode) -> None:
        self._tell(append_error(error))

    def lost(self) -> None:
        self._shard._not_stored(self._transactional_id)
        self._shard._read_anew()
        self._tell(ErrorCode.NOT_COORDINATOR)

    def _tell(self, error: ErrorCode) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(error)


def _finish(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _nobody(error: ErrorCode) -> None:
    """No request waits for it."""

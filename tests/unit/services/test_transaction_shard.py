"""The shell of transactions: a decision is stored, then applied, then answered, and markers follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headrace.env.real import real_env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.services.groups.settings import ShellSettings
from headrace.services.shards import ShardState
from headrace.services.transactions.records import decode_transactions
from headrace.services.transactions.settings import TransactionSettings
from headrace.services.transactions.shard import TransactionShard
from headrace.transactions.adding import decide_add
from headrace.transactions.decision import TransactionDecision
from headrace.transactions.ending import EndTransaction, decide_end
from headrace.transactions.starting import InitProducer, StartRules, decide_init
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import BUMPS_EPOCH, ProducerIdentity, Transaction
from tests.unit.services.fakes import FakeClock, FakePartition

P0 = TopicPartition("a", 0)
PRODUCER = ProducerIdentity(77, 0)
EXPIRATION_MS = 1_000_000


class Outbox:
    def __init__(self) -> None:
        self.sent: list[Transaction] = []

    def send(self, owner: object, ending: Transaction) -> None:
        self.sent.append(ending)


@dataclass
class Rig:
    clock: FakeClock
    partition: FakePartition
    outbox: Outbox
    shard: TransactionShard

    def begin(self, decider: Callable[..., TransactionDecision], patient: bool = False) -> Any:
        return asyncio.ensure_future(self.shard.decide("id", decider, patient))

    async def do(self, decider: Callable[..., TransactionDecision], patient: bool = False) -> TransactionDecision:
        work = self.begin(decider, patient)
        while not work.done():
            await asyncio.sleep(0)
            self.clock.turn()
        return await work  # type: ignore[no-any-return]

    @property
    def current(self) -> Transaction:
        found = self.shard.transaction("id")
        assert found is not None
        return found

    def is_in(self, state: TransactionState) -> bool:
        return self.current.state is state

    @property
    def stored(self) -> list[tuple[str, Transaction | None]]:
        batches = [memoryview(batch) for batch in self.partition.batches]
        return [item for batch in batches for item in decode_transactions(batch)]


def init(current: Transaction | None, new_id: int | None, now_ms: int) -> TransactionDecision:
    return decide_init(current, InitProducer("id", 60_000), 60_000, new_id, now_ms)


def add(current: Transaction | None, new_id: int | None, now_ms: int) -> TransactionDecision:
    identity = PRODUCER if current is None else current.identity
    return decide_add(current, identity, frozenset({P0}), BUMPS_EPOCH, now_ms)


def commit(current: Transaction | None, new_id: int | None, now_ms: int) -> TransactionDecision:
    assert current is not None
    return decide_end(current, EndTransaction(current.identity, True, True), new_id, now_ms)


def made(follows: bool = True) -> Rig:
    clock, partition, outbox = FakeClock(), FakePartition(follows), Outbox()
    partition.topic_partition = TopicPartition("__transaction_state", 0)
    env = replace(real_env(), clock=clock)
    settings = TransactionSettings(StartRules(900_000, True), ShellSettings(0, 30_000, 1000), 5, EXPIRATION_MS)

    async def new_id() -> int:
        return PRODUCER.producer_id

    shard = TransactionShard(env, partition, settings, new_id, outbox, asyncio.Semaphore(1))  # type: ignore[arg-type]
    shard.start()
    assert shard.state is ShardState.ACTIVE
    return Rig(clock, partition, outbox, shard)


@pytest.fixture
async def rig() -> Rig:
    return made()


async def test_a_transaction_from_beginning_to_end(rig: Rig) -> None:
    assert (await rig.do(init)).producer == PRODUCER
    await rig.do(add)
    decision = await rig.do(commit)
    assert decision.producer == (77, 1)
    assert rig.is_in(TransactionState.PREPARE_COMMIT)
    assert rig.outbox.sent == [rig.current]
    rig.shard.markers_written(rig.outbox.sent[0])
    rig.clock.turn()
    assert rig.is_in(TransactionState.COMPLETE_COMMIT)
    states = [transaction.state.title for _, transaction in rig.stored if transaction is not None]
    assert states == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]


async def test_nothing_is_known_before_the_replicas_have_it() -> None:
    rig = made(follows=False)
    work = rig.begin(init)
    for _ in range(5):
        await asyncio.sleep(0)
        rig.clock.turn()
    assert rig.partition.log.end_offset == 1
    assert not work.done()
    assert rig.shard.transaction("id") is None
    rig.partition.replicate(1)
    assert (await work).producer == PRODUCER
    assert rig.is_in(TransactionState.EMPTY)


async def test_what_could_not_be_stored_has_not_happened(rig: Rig) -> None:
    await rig.do(init)
    rig.partition.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError) as failed:
        await rig.do(add)
    assert failed.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.is_in(TransactionState.EMPTY)
    rig.partition.failure = None
    await rig.do(add)
    assert rig.is_in(TransactionState.ONGOING)


async def test_a_second_request_waits_for_the_first_and_not_for_ever() -> None:
    rig = made(follows=False)
    first, second = rig.begin(init), rig.begin(init)
    for _ in range(5):
        await asyncio.sleep(0)
        rig.clock.turn()
    rig.partition.replicate(1)
    assert (await first).producer == (77, 0)
    for _ in range(5):
        await asyncio.sleep(0)
        rig.clock.turn()
    third = rig.begin(init)
    await asyncio.sleep(0)
    rig.clock.advance(1)
    assert (await third).error is ErrorCode.CONCURRENT_TRANSACTIONS
    rig.partition.replicate(2)
    assert (await second).producer == (77, 1)


async def test_only_who_is_patient_waits_for_the_end_of_a_transaction(rig: Rig) -> None:
    for decider in (init, add, commit):
        await rig.do(decider)
    assert (await rig.do(init)).error is ErrorCode.CONCURRENT_TRANSACTIONS
    waiting = rig.begin(add, patient=True)
    await asyncio.sleep(0)
    assert not waiting.done()
    rig.shard.markers_written(rig.outbox.sent[0])
    rig.clock.turn()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rig.clock.turn()
    assert (await waiting).error is ErrorCode.NONE
    assert rig.is_in(TransactionState.ONGOING)
    await rig.do(commit)
    waiting = rig.begin(add, patient=True)
    await asyncio.sleep(0)
    rig.clock.advance(1)
    assert (await waiting).error is ErrorCode.CONCURRENT_TRANSACTIONS


async def test_the_completion_is_stored_again_where_that_failed(rig: Rig) -> None:
    for decider in (init, add, commit):
        await rig.do(decider)
    rig.partition.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.shard.markers_written(rig.outbox.sent[0])
    rig.clock.turn()
    await asyncio.sleep(0)
    assert rig.is_in(TransactionState.PREPARE_COMMIT)
    rig.partition.failure = None
    rig.clock.advance(10)
    rig.clock.turn()
    assert rig.is_in(TransactionState.COMPLETE_COMMIT)
    assert len(rig.outbox.sent) == 1, "the markers were written"


async def test_what_is_open_for_too_long_is_aborted(rig: Rig) -> None:
    await rig.do(init)
    await rig.do(add)
    rig.clock.advance(59)
    rig.shard.abort_overdue()
    rig.clock.turn()
    assert rig.is_in(TransactionState.ONGOING)
    rig.clock.advance(2)
    rig.shard.abort_overdue()
    rig.shard.abort_overdue()
    rig.clock.turn()
    assert rig.is_in(TransactionState.PREPARE_ABORT)
    assert rig.outbox.sent == [rig.current]
    assert (await rig.do(lambda current, new_id, now_ms: decide_end(
        current, EndTransaction(PRODUCER, True, True), new_id, now_ms
    ))).error is ErrorCode.PRODUCER_FENCED  # fmt: skip


async def test_a_jump_of_the_wall_clock_aborts_nothing(rig: Rig) -> None:
    await rig.do(init)
    await rig.do(add)
    rig.clock.wall_ms = lambda: int(rig.clock.now * 1000) + 10_000_000  # type: ignore[method-assign]
    rig.shard.abort_overdue()
    rig.clock.turn()
    assert rig.is_in(TransactionState.ONGOING)


async def test_ids_without_a_transaction_expire(rig: Rig) -> None:
    await rig.do(init)
    rig.clock.advance(EXPIRATION_MS / 1000 - 1)
    await rig.shard.expire()
    rig.clock.turn()
    assert rig.is_in(TransactionState.EMPTY)
    await rig.do(add)
    rig.clock.advance(2)
    await rig.shard.expire()
    rig.clock.turn()
    assert rig.is_in(TransactionState.ONGOING), "an open transaction keeps its id"
    await rig.do(commit)
    rig.shard.markers_written(rig.outbox.sent[0])
    rig.clock.turn()
    rig.clock.advance(EXPIRATION_MS / 1000 + 1)
    await rig.shard.expire()
    rig.clock.turn()
    assert rig.shard.transaction("id") is None
    assert rig.stored[-1] == ("id", None)


async def test_who_waits_when_leadership_goes_is_sent_on() -> None:
    rig = made(follows=False)
    first, second = rig.begin(init), rig.begin(init)
    for _ in range(5):
        await asyncio.sleep(0)
        rig.clock.turn()
    rig.shard.resign()
    for work in (first, second):
        with pytest.raises(KafkaError) as refused:
            await work
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError):
        rig.shard.transaction("id")


async def test_markers_of_a_past_end_change_nothing(rig: Rig) -> None:
    for decider in (init, add, commit):
        await rig.do(decider)
    ending = rig.outbox.sent[0]
    for _ in range(2):
        rig.shard.markers_written(ending)
        rig.clock.turn()
    await rig.do(add)
    rig.shard.markers_written(ending)
    rig.clock.turn()
    assert rig.is_in(TransactionState.ONGOING)


async def test_only_the_last_word_on_a_transaction_awaits_markers(rig: Rig) -> None:
    """What a coordinator that has read its log again sends for an older end would end the next transaction."""
    for decider in (init, add, classic_commit):
        await rig.do(decider)
    ending = rig.outbox.sent[0]
    assert rig.shard.awaits_markers(ending)
    same_end_read_again = ending._replace()
    assert not rig.shard.awaits_markers(same_end_read_again)
    rig.shard.markers_written(ending)
    rig.clock.turn()
    assert not rig.shard.awaits_markers(ending)


async def test_a_coordinator_that_may_be_replaced_answers_nothing_from_memory() -> None:
    """Without its lease it cannot know what its successor has stored: an old commit is not the one asked for."""
    rig = made()
    await rig.do(init)
    await rig.do(add)
    await rig.do(classic_commit)
    rig.shard.markers_written(rig.outbox.sent[-1])
    rig.clock.turn()
    assert (await rig.do(classic_commit)).error is ErrorCode.NONE, "the same once more"
    rig.partition.surely_leads = False
    for asked in (classic_commit, stranger_adds):
        with pytest.raises(KafkaError) as refused:
            await rig.do(asked)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError) as refused:
        rig.shard.transaction("id")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


def classic_commit(current: Transaction | None, new_id: int | None, now_ms: int) -> TransactionDecision:
    assert current is not None
    return decide_end(current, EndTransaction(current.identity, True, False), new_id, now_ms)


def stranger_adds(current: Transaction | None, new_id: int | None, now_ms: int) -> TransactionDecision:
    return decide_add(current, ProducerIdentity(77, 5), frozenset({P0}), BUMPS_EPOCH, now_ms)

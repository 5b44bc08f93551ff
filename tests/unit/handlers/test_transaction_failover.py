"""Another coordinator takes over: it knows what the one before had stored, and goes on with the markers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.builder import build_batch
from headrace.services.shards import ShardState
from headrace.services.transactions.encoding import encode_transaction
from headrace.services.transactions.settings import transaction_settings
from headrace.services.transactions.shard import TransactionShard
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import Transaction
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.unit.handlers.test_transactions import prepared
from tests.unit.handlers.transactors import NONE, Client, until

SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
STATE_TOPIC = "__transaction_state"


class Outbox:
    def __init__(self) -> None:
        self.sent: list[Transaction] = []

    def send(self, owner: object, ending: Transaction) -> None:
        self.sent.append(ending)


@pytest.fixture
async def bench(bench_with: Any) -> AsyncIterator[Any]:
    async with bench_with(SETTINGS) as running:
        await running.create_topic("t", 3)
        await running.call(FindCoordinatorRequest(coordinator_keys=["id"], key_type=1), 4)
        yield running


async def successor(bench: Any, outbox: Outbox) -> TransactionShard:
    async def no_more() -> int:
        raise AssertionError("no producer id is needed")

    shard = TransactionShard(
        bench.broker.env,
        bench.partition(STATE_TOPIC),
        transaction_settings(bench.broker.config),
        no_more,
        outbox,
        asyncio.Semaphore(1),
    )
    shard.start()
    assert shard.state is ShardState.LOADING
    with pytest.raises(KafkaError) as refused:
        shard.transaction("id")
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def state() -> ShardState:
        return shard.state

    await until(state, lambda found: found is not ShardState.LOADING)
    assert shard.in_charge
    return shard


async def test_everything_is_found_again(bench: Any) -> None:
    clients = [Client(bench, f"id{number}") for number in range(5)]
    for client in clients:
        await client.init(6, enable2_pc=True)
    await clients[1].add(0, 2)
    for client, commit in ((clients[2], True), (clients[3], False)):
        await client.produce(0, version=12)
        assert (await client.end(commit, 5)).error_code == NONE
        await client.until_state("CompleteCommit" if commit else "CompleteAbort")
    await prepared(clients[4])
    outbox = Outbox()
    shard = await successor(bench, outbox)
    known = {one.transactional_id: one for one in bench.broker.transactions.transactions()}
    assert {one.transactional_id: one for one in shard.transactions()} == known
    assert shard.prepared_count() == 1
    assert outbox.sent == []


async def test_markers_that_are_missing_are_sent_again(bench: Any) -> None:
    ending = Transaction(
        "late",
        77,
        4,
        TransactionState.PREPARE_ABORT,
        60_000,
        updated_ms=5,
        start_ms=4,
        partitions=frozenset({TopicPartition("t", 0), TopicPartition("t", 2)}),
    )
    batch = build_batch([encode_transaction(ending)])
    bench.partition(STATE_TOPIC).append(memoryview(batch), -1)
    outbox = Outbox()
    shard = await successor(bench, outbox)
    assert outbox.sent == [ending]
    shard.markers_written(outbox.sent[0])

    async def state() -> TransactionState:
        found = shard.transaction("late")
        assert found is not None
        return found.state

    assert await until(state, lambda found: found is not ending.state) is TransactionState.COMPLETE_ABORT


async def test_what_is_overdue_at_once_is_aborted(bench: Any) -> None:
    open_ = Transaction(
        "old",
        77,
        4,
        TransactionState.ONGOING,
        60_000,
        updated_ms=5,
        start_ms=4,
        partitions=frozenset({TopicPartition("t", 0)}),
    )
    bench.partition(STATE_TOPIC).append(memoryview(build_batch([encode_transaction(open_)])), -1)
    outbox = Outbox()
    shard = await successor(bench, outbox)
    shard.abort_overdue()

    async def sent() -> list[Transaction]:
        return outbox.sent

    (ending,) = await until(sent, bool)
    assert (ending.state, ending.producer_epoch) == (TransactionState.PREPARE_ABORT, 6)

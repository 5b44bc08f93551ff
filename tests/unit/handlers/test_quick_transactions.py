"""The quick handlers of transactions need no task, and leave to the cold ones what is not usual.

What they answer is the matter of `test_transactions`, which asks both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.services.reply import NOT_QUICK, Pending
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.unit.handlers.transactors import SETTINGS, Client, answered, until


@pytest.fixture
async def bench(bench_with: Any) -> AsyncIterator[Any]:
    async with bench_with(SETTINGS) as running:
        await running.create_topic("t", 3)
        await running.call(FindCoordinatorRequest(coordinator_keys=["id"], key_type=1), 4)
        yield running


def joining(client: Client, topic: str = "t", index: int = 0) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=client.id,
        v3_and_below_producer_id=client.producer.producer_id,
        v3_and_below_producer_epoch=client.producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index])],
    )


def ending(client: Client) -> EndTxnRequest:
    producer_id, epoch = client.producer
    return EndTxnRequest(transactional_id=client.id, producer_id=producer_id, producer_epoch=epoch, committed=True)


async def test_the_usual_requests_need_no_task(bench: Any) -> None:
    client = Client(bench)
    await client.init()
    tasks = asyncio.all_tasks()
    adding = client.ask_quickly(joining(client), 0)
    assert isinstance(adding, Pending)
    assert client.ask_quickly(joining(client), 0) is NOT_QUICK, "a decision is under way"
    assert client.ask_quickly(ending(client), 1) is NOT_QUICK
    await answered(adding)
    assert isinstance(client.ask_quickly(joining(client), 0), bytes), "it is in the transaction"
    assert isinstance(client.send({0: 0}, version=11), bytes), "verified here, and appended at once"
    await answered(client.ask_quickly(ending(client), 1))
    assert bench.partition("t").log.last_stable_offset(2) == 2, "the marker is written"
    await client.init_until_ready()
    writing = client.send({0: 0}, version=12)
    assert isinstance(writing, Pending)
    await answered(writing)
    assert asyncio.all_tasks() == tasks


async def test_what_is_not_usual_is_left_to_the_cold_handlers(bench: Any) -> None:
    client, stranger = Client(bench), Client(bench, "stranger")
    await client.init()
    for request in (joining(client, "none"), joining(client, index=3), joining(client, "__transaction_state")):
        assert client.ask_quickly(request, 3) is NOT_QUICK
    assert client.ask_quickly(ending(Client(bench, "")), 5) is NOT_QUICK
    unknown = client.ask_quickly(ending(stranger), 5)
    assert unknown == (await bench.call(ending(stranger), 5)).encode(5)
    bench.broker.transactions.close()
    assert client.ask_quickly(joining(client), 3) is NOT_QUICK
    assert client.ask_quickly(ending(client), 5) is NOT_QUICK
    assert client.send({0: 0}, version=12).done is False, "it waits for a coordinator"


async def test_a_client_that_is_gone_does_not_undo_its_request(bench: Any) -> None:
    client = Client(bench)
    await client.init()
    writing = client.send({0: 0}, version=12)
    writing.cancel()
    await until(client.state, lambda found: found.transaction_state == "Ongoing")
    assert bench.partition("t").log.end_offset == 1
    ended = client.ask_quickly(ending(client), 5)
    ended.cancel()
    await until(client.state, lambda found: found.transaction_state == "CompleteCommit")
    assert not bench.broker.verifier.is_waited_for(client.id)

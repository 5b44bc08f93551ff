"""Transactions through the handlers: what clients of each version are answered, and what is in the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.services.reply import Pending
from headrace.services.transactions.figures import TransactionFigures
from headrace.services.transactions.verification import Verification
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.list_transactions import ListTransactionsRequest
from headrace.wire.messages.produce import (
    ProduceResponse,
)
from tests.unit.handlers.transactors import NONE, SETTINGS, WAIT_SECONDS, Client, until


@pytest.fixture
async def bench(bench_with: Any) -> AsyncIterator[Any]:
    async with bench_with(SETTINGS) as running:
        await running.create_topic("t", 3)
        found = await running.call(FindCoordinatorRequest(coordinator_keys=["id"], key_type=1), 4)
        assert [(row.key, row.error_code, row.node_id) for row in found.coordinators] == [("id", NONE, 1)]
        yield running


@pytest.fixture(params=[True, False], ids=["quick", "cold"])
async def client(bench: Any, request: pytest.FixtureRequest) -> Client:
    return Client(bench, quick=request.param)


async def test_the_topic_is_made_by_the_first_question(bench: Any) -> None:
    topic = bench.image.topics["__transaction_state"]
    assert len(topic.partitions) == 2
    assert topic.configs["cleanup.policy"] == "compact"
    assert topic.configs["min.insync.replicas"] == "2"


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_of_an_older_client(bench: Any, client: Client, commit: bool) -> None:
    await client.init()
    assert await client.add(0, 1) == [NONE, NONE]
    assert await client.produce(0) is NONE
    partition = bench.partition("t", 0)
    assert partition.last_stable_offset == 0
    assert (await client.end(commit)).error_code == NONE
    state = await client.until_state("CompleteCommit" if commit else "CompleteAbort")
    assert (partition.last_stable_offset, partition.end_offset) == (2, 2)
    assert state.producer_epoch == client.producer.epoch == 0, "the epoch stays"
    assert bench.partition("t", 1).end_offset == 1
    assert (await client.end(commit)).error_code == NONE, "a repeated end is answered as before"


async def test_transactions_of_version_2(bench: Any, client: Client) -> None:
    await client.init()
    for number in range(1, 4):
        assert await client.produce(0, version=12) is NONE, "the partition is added by the way"
        assert await client.produce(1, version=12, sequence=0) is NONE
        assert (await client.end(number % 2 == 0, version=5)).producer_epoch == number
    await client.until_state("CompleteAbort")
    assert bench.partition("t", 0).end_offset == 6
    assert bench.partition("t", 0).last_stable_offset == 6


async def test_a_late_produce_of_version_2_joins_nothing(bench: Any, client: Client) -> None:
    await client.init()
    assert await client.produce(0, version=12) is NONE
    before = client.producer
    await client.end(version=5)
    await client.until_state("CompleteCommit")
    late = await client.produce(0, version=12, epoch=before.epoch, sequence=1)
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH
    late = await client.produce(1, version=12, epoch=before.epoch, sequence=0)
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH, "also where no marker was written"
    assert bench.partition("t", 1).end_offset == 0


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_a_late_produce_of_an_older_client_joins_nothing(
    bench: Any, client: Client, version: int, code: ErrorCode
) -> None:
    await client.init()
    assert await client.add(0) == [NONE]
    assert await client.produce(0, version=version) is NONE
    assert await client.produce(1, version=version, sequence=0) is code, "not added"
    await client.end()
    await client.until_state("CompleteCommit")
    assert await client.produce(0, version=version) is code
    assert bench.partition("t", 0).last_stable_offset == bench.partition("t", 0).end_offset == 2


async def test_without_verification_older_clients_are_believed(bench_with: Any) -> None:
    async with bench_with({**SETTINGS, "transaction.partition.verification.enable": "false"}) as bench:
        client = await ready(bench)
        await client.init()
        assert await client.produce(0, version=11) is NONE


async def test_verification_can_be_switched_off_while_the_broker_runs(bench: Any, client: Client) -> None:
    await client.init()
    assert await client.produce(0, version=11) is ErrorCode.TRANSACTION_ABORTABLE
    off = AlterableConfig(name="transaction.partition.verification.enable", config_operation=0, value="false")
    every_broker = AlterConfigsResource(resource_type=4, resource_name="", configs=[off])
    answer = await bench.call(IncrementalAlterConfigsRequest(resources=[every_broker]), 1)
    assert answer.responses[0].error_code == NONE
    assert await client.produce(0, version=11) is NONE


@pytest.mark.parametrize(
    ("stamp", "code"),
    [
        ({"epoch": 7}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"producer_id": 99_999}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"transactional_id": "nobody"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"transactional_id": None}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
@pytest.mark.parametrize("version", [8, 11, 12])
async def test_produce_by_a_stranger(client: Client, stamp: Any, code: ErrorCode, version: int) -> None:
    await client.init()
    assert await client.add(0) == [NONE]
    assert await client.produce(0, version=version, **stamp) is code


@pytest.mark.parametrize("version", [8, 11, 12])
async def test_nobody_joins_an_open_transaction_without_its_id(bench: Any, client: Client, version: int) -> None:
    """The right to write is one on the id: who leaves it out must not get round that."""
    await client.init()
    assert await client.add(0) == [NONE]
    assert await client.produce(0, version=version) is NONE
    code = await client.produce(0, version=version, transactional_id=None)
    assert code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert bench.partition("t", 0).end_offset == 1


async def test_requests_that_wait_for_the_coordinator_keep_their_order(bench: Any, client: Client) -> None:
    await client.init()
    codes = await asyncio.gather(*(client.produce(0, version=12, sequence=number) for number in range(5)))
    assert codes == [NONE] * 5
    assert bench.partition("t", 0).end_offset == 5


# --- fencing, by version


@pytest.mark.parametrize("version", range(7))
async def test_init_fences_the_one_before(client: Client, version: int) -> None:
    await client.init()
    assert await client.add(0) == [NONE]
    before = client.producer
    assert (await client.init()).error_code == ErrorCode.CONCURRENT_TRANSACTIONS, "what is open is aborted first"
    await client.init_until_ready()
    assert client.producer.producer_id == before.producer_id
    assert client.producer.epoch > before.epoch
    if version >= 3:
        late = await client.init(version, producer_id=before.producer_id, producer_epoch=before.epoch)
        old, new = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED
        assert late.error_code == (new if version >= 4 else old)


async def test_a_fenced_producer_is_refused_in_the_words_of_its_version(client: Client) -> None:
    await client.init()
    before = client.producer
    await client.init()
    who: dict[str, Any] = {"producer_epoch": before.epoch}
    for version in range(4):
        code = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await client.add(0, version=version, **who) == [code]
    for version in range(6):
        code = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await client.end(version=version, **who)).error_code == code
    for version in range(5):
        code = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        request = AddOffsetsToTxnRequest(
            transactional_id="id", producer_id=before.producer_id, producer_epoch=before.epoch, group_id="g"
        )
        assert (await client.bench.call(request, version)).error_code == code


# --- bad input


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5, "producer_epoch": 0}, ErrorCode.PRODUCER_FENCED),
    ],
)
async def test_bad_init(client: Client, fields: Any, code: ErrorCode) -> None:
    await client.init()
    response = await client.init(5, **fields)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


async def test_bad_add(bench: Any, client: Client) -> None:
    await client.init()
    unknown, skipped = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert await client.add(0, 9) == [skipped, unknown]
    assert await client.add(0, topic="gone") == [unknown]
    assert await client.add(0, topic="__transaction_state") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert await client.add(0, producer_id=12345) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert (await client.state()).transaction_state == "Empty"
    client.id = "nobody"
    assert await client.add(0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    client.id = ""
    assert await client.add(0) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("version", range(6))
async def test_bad_end(client: Client, version: int) -> None:
    await client.init()
    assert (await client.end(True, version)).error_code == ErrorCode.INVALID_TXN_STATE, "nothing to commit"
    aborted = await client.end(False, version)
    assert aborted.error_code == (NONE if version >= 5 else ErrorCode.INVALID_TXN_STATE)
    unknown = await client.end(True, version, producer_id=12345)
    assert unknown.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    client.id = "nobody"
    assert (await client.end(True, version)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    client.id = ""
    assert (await client.end(True, version)).error_code == ErrorCode.INVALID_REQUEST


async def test_the_wrong_end_after_the_right_one(client: Client) -> None:
    await client.init()
    await client.add(0)
    await client.end(True)
    await client.until_state("CompleteCommit")
    assert (await client.end(False)).error_code == ErrorCode.INVALID_TXN_STATE


async def test_a_broker_that_coordinates_nothing(bench_with: Any) -> None:
    async with bench_with({}) as bench:
        client = Client(bench)
        assert (await client.init()).error_code == ErrorCode.NOT_COORDINATOR
        assert (await client.end()).error_code == ErrorCode.NOT_COORDINATOR
        assert (await client.state()).error_code == ErrorCode.NOT_COORDINATOR


# --- verification between brokers


@pytest.mark.parametrize("version", [4, 5])
async def test_verify_only(client: Client, version: int) -> None:
    await client.init()
    await client.add(0)
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert await client.add(0, 1, version=version, verify_only=True) == [NONE, abortable]
    assert [topic.partitions for topic in (await client.state()).topics] == [[0]]
    fenced = await client.add(0, version=version, verify_only=True, producer_epoch=9)
    assert fenced == [ErrorCode.PRODUCER_FENCED]


async def test_many_transactions_in_one_request(bench: Any) -> None:
    clients = [Client(bench, f"id{number}") for number in range(10)]
    for client in clients:
        await client.init()
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=client.id,
                producer_id=client.producer.producer_id,
                producer_epoch=client.producer.epoch,
                topics=topics,
            )
            for client in clients
        ]
    )
    response = await bench.call(request, 5)
    assert [result.transactional_id for result in response.results_by_transaction] == [one.id for one in clients]
    states = [(await client.state()).transaction_state for client in clients]
    assert states == ["Ongoing"] * 10


async def test_a_batch_does_not_overtake_one_that_waits(bench: Any, client: Client) -> None:
    """Found by franz-go under load: the transaction was open in the partition by then."""
    await client.init()
    assert await client.produce(0, version=12, sequence=0) is NONE
    turn = bench.broker.verifier.turn(client.id)
    second = asyncio.ensure_future(client.produce(0, version=12, sequence=1))
    await asyncio.sleep(0)
    third = asyncio.ensure_future(client.produce(0, version=12, sequence=2))
    await asyncio.sleep(0)
    assert not second.done()
    assert not third.done()
    async with turn:
        pass
    assert await asyncio.wait_for(second, WAIT_SECONDS) is NONE
    assert await asyncio.wait_for(third, WAIT_SECONDS) is NONE
    assert not bench.broker.verifier.is_waited_for(client.id)


async def test_a_batch_does_not_overtake_one_that_is_still_to_be_verified_elsewhere(
    bench: Any, client: Client
) -> None:
    """All three come in one read: the second is for a new partition too, whose coordinator has to be asked."""
    await client.init()
    assert await client.produce(0, version=12, sequence=0) is NONE
    answers = [
        client.send({0: 1, 1: 0}, version=12),
        client.send({0: 2}, version=12),
    ]
    for reply in answers:
        assert isinstance(reply, Pending), "the second as well, though it has nothing to ask"
        done = asyncio.Event()
        reply.when_done(done.set)
        if not reply.done:
            await asyncio.wait_for(done.wait(), WAIT_SECONDS)
        body = reply.result()
        assert isinstance(body, bytes)
        for topic in ProduceResponse.decode(body, 12).responses:
            assert [one.error_code for one in topic.partition_responses] == [NONE] * len(topic.partition_responses)


async def test_the_verifier_asks_a_coordinator_on_this_broker(bench: Any, client: Client) -> None:
    await client.init()
    partition = TopicPartition("t", 0)
    asked = Verification("id", client.producer, frozenset({partition}), adds=False)
    assert await bench.broker.verifier.verify(asked) == {partition: ErrorCode.TRANSACTION_ABORTABLE}
    adding = Verification("id", client.producer, frozenset({partition}), adds=True)
    assert await bench.broker.verifier.verify(adding) == {partition: NONE}
    assert await bench.broker.verifier.verify(asked) == {partition: NONE}


# --- groups' offsets


async def test_offsets_join_by_their_partition(bench: Any, client: Client) -> None:
    await client.init()
    request = AddOffsetsToTxnRequest(
        transactional_id="id", producer_id=client.producer.producer_id, producer_epoch=0, group_id="g"
    )
    assert (await bench.call(request, 4)).error_code == NONE
    (topic,) = (await client.state()).topics
    expected = bench.broker.groups.offsets_partition("g")
    assert (topic.topic, topic.partitions) == (expected.topic, [expected.partition])
    assert (await client.end()).error_code == NONE
    await client.until_state("CompleteCommit")


# --- two-phase commit (KIP-939)


async def prepared(client: Client) -> Any:
    await client.init(6, enable2_pc=True)
    await client.add(0)
    await client.produce(0)
    return await client.init(6, enable2_pc=True, keep_prepared_txn=True)


@pytest.mark.parametrize("commit", [True, False])
async def test_a_prepared_transaction_is_ended_by_name(bench: Any, client: Client, commit: bool) -> None:
    first = await prepared(client)
    assert (first.ongoing_txn_producer_id, first.ongoing_txn_producer_epoch) == (first.producer_id, 0)
    assert (await client.state()).transaction_timeout_ms == 2**31 - 1
    another = Client(bench)
    second = await another.init(6, enable2_pc=True, keep_prepared_txn=True)
    assert (second.ongoing_txn_producer_id, second.ongoing_txn_producer_epoch) == (first.producer_id, 0)
    assert (await client.end(commit, 5)).error_code == ErrorCode.PRODUCER_FENCED
    recorded = another.producer
    for _ in range(2):
        another.producer = recorded
        ended = await until(lambda: another.end(commit, 5), lambda response: response.error_code != 51)
        assert ended.error_code == NONE
        await client.until_state("CompleteCommit" if commit else "CompleteAbort")
    assert bench.partition("t", 0).last_stable_offset == 2
    assert (await client.state()).transaction_timeout_ms == 60_000


async def test_a_prepared_transaction_is_aborted_by_an_ordinary_init(client: Client) -> None:
    await prepared(client)
    assert (await client.init()).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    await client.until_state("CompleteAbort")


async def ready(bench: Any) -> Client:
    await bench.create_topic("t", 1)
    await bench.call(FindCoordinatorRequest(coordinator_keys=["id"], key_type=1), 4)
    return Client(bench)


async def test_two_phase_commit_can_be_forbidden(bench_with: Any) -> None:
    async with bench_with({**SETTINGS, "transaction.two.phase.commit.enable": "false"}) as bench:
        client = await ready(bench)
        refused = await client.init(6, enable2_pc=True)
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await client.init(6, keep_prepared_txn=True)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_prepared_transactions_are_limited(bench_with: Any) -> None:
    async with bench_with({**SETTINGS, "headrace.transaction.max.prepared": "1"}) as bench:
        client = await ready(bench)
        assert (await prepared(client)).error_code == NONE
        assert (await client.init(6, enable2_pc=True, keep_prepared_txn=True)).error_code == NONE, "the same again"
        another = Client(bench, "another")
        assert (await prepared(another)).error_code == ErrorCode.POLICY_VIOLATION
        await client.end(True, 5)
        retried = await another.init(6, enable2_pc=True, keep_prepared_txn=True)
        assert retried.error_code == NONE


# --- looking


async def test_listing(bench: Any) -> None:
    first, second = Client(bench, "first"), Client(bench, "second")
    await first.init()
    await second.init()
    await second.add(0)

    async def listed(version: int = 2, **filters: Any) -> list[str]:
        response = await bench.call(ListTransactionsRequest(**filters), version)
        assert response.error_code == NONE
        return sorted(f"{row.transactional_id} {row.transaction_state}" for row in response.transaction_states)

    for version in range(3):
        assert await listed(version) == ["first Empty", "second Ongoing"]
        assert await listed(version, state_filters=["Ongoing"]) == ["second Ongoing"]
        assert await listed(version, state_filters=["Nope"]) == []
        assert await listed(version, producer_id_filters=[first.producer.producer_id]) == ["first Empty"]
    assert await listed(duration_filter=3_600_000) == ["first Empty"], (
        "no transaction counts as an old one, as in Kafka"
    )
    assert await listed(transactional_id_pattern="f.*") == ["first Empty"]
    assert await listed(transactional_id_pattern="f") == []
    assert await listed(transactional_id_pattern="") == ["first Empty", "second Ongoing"]


async def test_figures(bench: Any, client: Client) -> None:
    await prepared(client)
    another = Client(bench, "another")
    await another.init()
    transactions = bench.broker.transactions
    families = {one.name: one.samples for one in TransactionFigures(transactions, transactions.markers).families()}
    counted = {labels[0][1]: value for labels, value in families["headrace_transactions"] if value}
    assert counted == {"Ongoing": 1, "Empty": 1}
    assert families["headrace_transactions_prepared"] == [((), 1)]
    assert families["headrace_transaction_markers_waiting"] == [((), 0)]


async def test_describing(bench: Any, client: Client) -> None:
    await client.init()
    await client.add(0, 2)
    state = await client.state()
    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (NONE, "Ongoing", 60_000)
    assert (state.producer_id, state.producer_epoch) == client.producer
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0, 2])]
    assert state.transaction_start_time_ms > 0
    client.id = "nobody"
    assert (await client.state()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

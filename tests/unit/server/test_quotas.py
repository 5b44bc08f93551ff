"""Quotas at the gate: rates that hold over a minute of virtual time, and what clients are told."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.env.real import RealDisk
from headrace.handlers import load_all
from headrace.handlers.produce import produce as plain_produce
from headrace.handlers.registry import APIS
from headrace.metadata.topic_decisions import TopicCreation
from headrace.model.errors import ErrorCode
from headrace.node import Node
from headrace.security.quota import QuotaTable
from headrace.server.broker_proof import BrokerProof
from headrace.server.connection_rates import ConnectionRates
from headrace.server.exchange import Exchange
from headrace.server.quotas import QuotaGuard
from headrace.services.reply import Pending
from headrace.testing.in_process import Client, env_with
from headrace.testing.in_process_cluster import running_cluster
from headrace.testing.raw_client import build_batch
from headrace.wire.api_keys import ApiKey
from headrace.wire.fetch import limited
from headrace.wire.header import request_header
from headrace.wire.messages import alter_client_quotas as altering
from headrace.wire.messages import create_topics as creating
from headrace.wire.messages import describe_client_quotas as describing
from headrace.wire.messages import fetch as fetching
from headrace.wire.messages import produce as producing
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from headrace.wire.produce import with_throttle_time

load_all()
MB = 1 << 20
MINUTE = 60.0
PRODUCE_VERSION, FETCH_VERSION = 9, 12


# -- virtual time


class VirtualBroker:
    """A gate over a clock that is moved by hand, with handlers that do nothing but take time."""

    def __init__(self, quotas: QuotaTable, seconds_per_request: float = 0.0001, **settings: str) -> None:
        self.time = 1000.0
        self.now = 1000.0
        self._seconds = seconds_per_request
        self.held: dict[object, float] = {}
        clock = SimpleNamespace(monotonic=lambda: self.time)
        config = BrokerConfig.build(flags={name.replace("_", "."): value for name, value in settings.items()})
        broker = SimpleNamespace(env=SimpleNamespace(clock=clock), config=config)
        proof = BrokerProof(cast(Any, broker), None)
        self.guard = QuotaGuard(cast(Any, broker), None, cast(Any, self), proof)
        self.guard.follow(cast(Any, SimpleNamespace(quotas=quotas)))
        self.answer: bytes | Pending = b""

    def handle(self, exchange: object, version: int, frame: memoryview, position: int) -> Any:
        self.time += self._seconds
        return self.answer

    def call(self, client: VirtualClient, key: int, version: int, body: bytes) -> Any:
        frame = request_header(key, version, 1, client.client_id) + body
        self.now = self.time
        position = len(frame) - len(body)
        return self.guard.hot(APIS[key], self.handle)(
            cast(Exchange, client), version, memoryview(bytearray(frame)), position
        )


class VirtualClient:
    def __init__(self, broker: VirtualBroker, client_id: str, user: str = "ANONYMOUS") -> None:
        self._broker = broker
        self.client_id = client_id
        self.principal = f"User:{user}"
        self.client_host = "127.0.0.1"
        self.free_at = 0.0
        self.bytes = 0

    def hold_back(self, seconds: float) -> None:
        self.free_at = max(self.free_at, self._broker.time + seconds)

    def let_go(self) -> None:
        self.free_at = 0.0


def produce_body(size: int) -> bytes:
    return b"\0" * size


def flexible_produce_answer() -> bytes:
    return producing.ProduceResponse(responses=[]).encode(PRODUCE_VERSION)


def run_greedily(broker: VirtualBroker, clients: list[VirtualClient], key: int, size: int) -> None:
    """A minute in which every client sends its next request as soon as it is read from again."""
    end = broker.time + MINUTE
    while True:
        client = min(clients, key=lambda one: one.free_at)
        broker.time = max(broker.time, client.free_at)
        if broker.time >= end:
            return
        if key == ApiKey.PRODUCE:
            broker.call(client, key, PRODUCE_VERSION, produce_body(size))
            client.bytes += size
        else:
            body = fetching.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=size).encode(FETCH_VERSION)
            answer = broker.call(client, key, FETCH_VERSION, body)
            client.bytes += 0 if isinstance(answer, bytes) and int.from_bytes(answer[:4], "big") else size


@pytest.mark.parametrize("clients", [1, 10])
@pytest.mark.parametrize(("rate", "size"), [(MB, 16 * 1024), (5 * MB, 100_000), (200_000, 10_000)])
def test_produce_is_held_to_its_rate(clients: int, rate: int, size: int) -> None:
    """Within 5 % over a minute, from the very first byte."""
    broker = VirtualBroker({(("user", "alice"),): {"producer_byte_rate": float(rate)}})
    broker.answer = flexible_produce_answer()
    greedy = [VirtualClient(broker, f"c{n}", "alice") for n in range(clients)]
    run_greedily(broker, greedy, ApiKey.PRODUCE, size)
    used = sum(client.bytes for client in greedy)
    assert rate * MINUTE * 0.95 <= used <= rate * MINUTE * 1.05


def test_each_client_has_the_default_for_itself() -> None:
    broker = VirtualBroker({(("client-id", None),): {"producer_byte_rate": float(MB)}})
    broker.answer = flexible_produce_answer()
    greedy = [VirtualClient(broker, name) for name in ("a", "b")]
    run_greedily(broker, greedy, ApiKey.PRODUCE, 16_384)
    for client in greedy:
        assert MB * MINUTE * 0.95 <= client.bytes <= MB * MINUTE * 1.05


@pytest.mark.parametrize("clients", [1, 10])
def test_fetch_is_held_to_its_rate(clients: int) -> None:
    rate, size = 2 * MB, 100_000
    broker = VirtualBroker({(("user", None),): {"consumer_byte_rate": float(rate)}})
    broker.answer = bytes(size)
    greedy = [VirtualClient(broker, f"c{n}", "bob") for n in range(clients)]
    run_greedily(broker, greedy, ApiKey.FETCH, size)
    used = sum(client.bytes for client in greedy)
    assert rate * MINUTE * 0.95 <= used <= rate * MINUTE * 1.05


def test_request_time_is_held_to_its_share_of_the_loop() -> None:
    broker = VirtualBroker({(("client-id", "busy"),): {"request_percentage": 10.0}}, seconds_per_request=0.001)
    broker.answer = flexible_produce_answer()
    busy = VirtualClient(broker, "busy")
    run_greedily(broker, [busy], ApiKey.PRODUCE, 1000)
    requests = busy.bytes / 1000
    assert MINUTE * 0.10 * 0.95 <= requests * 0.001 <= MINUTE * 0.10 * 1.05


def test_what_it_takes_to_hold_a_client_back_counts_too() -> None:
    broker = VirtualBroker({(("client-id", "busy"),): {"request_percentage": 10.0}}, seconds_per_request=0.001)
    broker.answer = flexible_produce_answer()
    held: list[float] = []

    class SlowToHold(VirtualClient):
        def hold_back(self, seconds: float) -> None:
            super().hold_back(seconds)
            broker.time += 0.0005
            held.append(seconds)

    busy = SlowToHold(broker, "busy")
    run_greedily(broker, [busy], ApiKey.PRODUCE, 1000)
    used = busy.bytes / 1000 * 0.001 + len(held) * 0.0005
    assert MINUTE * 0.10 * 0.95 <= used <= MINUTE * 0.10 * 1.05


def test_kafkas_own_window_allows_a_burst_of_ten_seconds() -> None:
    broker = VirtualBroker({(("user", None),): {"producer_byte_rate": float(MB)}}, quota_window_num="11")
    broker.answer = flexible_produce_answer()
    client = VirtualClient(broker, "c")
    while not client.free_at:
        broker.call(client, ApiKey.PRODUCE, PRODUCE_VERSION, produce_body(100_000))
        client.bytes += 100_000
    assert 10 * MB <= client.bytes <= 10 * MB + 200_000


def test_others_are_not_looked_at_twice() -> None:
    broker = VirtualBroker({(("user", "alice"),): {"producer_byte_rate": 1.0}})
    broker.answer = flexible_produce_answer()
    for client in (VirtualClient(broker, "c", "bob"), VirtualClient(broker, "headrace-broker-2", "alice")):
        assert broker.call(client, ApiKey.PRODUCE, PRODUCE_VERSION, produce_body(1000)) is broker.answer
        assert not client.free_at
    assert broker.guard.hot(APIS[ApiKey.FETCH], plain_produce) is plain_produce, "no quota of that kind"


def test_long_client_ids_take_no_memory() -> None:
    """Ten thousand of 32 KB, which a Produce may have, were 630 MB."""
    broker = VirtualBroker({(("client-id", None),): {"producer_byte_rate": 1.0}})
    broker.answer = flexible_produce_answer()
    tracemalloc.start()
    try:
        for number in range(50):
            client = VirtualClient(broker, f"{number}" * 15_000)
            broker.call(client, ApiKey.PRODUCE, PRODUCE_VERSION, produce_body(100))
            assert client.free_at > broker.time + 50, "each by itself"
        again = VirtualClient(broker, "7" * 15_000)
        broker.call(again, ApiKey.PRODUCE, PRODUCE_VERSION, produce_body(100))
        assert again.free_at > broker.time + 150, "what it had used was remembered"
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 500_000


def test_an_answer_that_comes_later_tells_it_too() -> None:
    broker = VirtualBroker({(("user", None),): {"producer_byte_rate": 1000.0}})
    later = broker.answer = Pending()
    client = VirtualClient(broker, "c")
    reply = broker.call(client, ApiKey.PRODUCE, PRODUCE_VERSION, produce_body(3000))
    assert not client.free_at
    delivered: list[bool] = []
    reply.when_done(lambda: delivered.append(True))
    later.complete(flexible_produce_answer())
    told = producing.ProduceResponse.decode(reply.result(), PRODUCE_VERSION).throttle_time_ms
    assert delivered
    assert 2000 <= told <= 2200
    assert client.free_at == pytest.approx(broker.time + told / 1000, abs=0.01)
    gone = broker.answer = Pending()
    broker.call(client, ApiKey.PRODUCE, PRODUCE_VERSION, produce_body(3000)).cancel()
    assert gone.done


def test_who_waits_goes_on_when_the_quota_changes() -> None:
    broker = VirtualBroker({(("user", None),): {"producer_byte_rate": 1.0}})
    broker.answer = flexible_produce_answer()
    client = VirtualClient(broker, "c")
    broker.call(client, ApiKey.PRODUCE, PRODUCE_VERSION, produce_body(100_000))
    assert client.free_at > broker.time + 1000
    broker.guard.follow(cast(Any, SimpleNamespace(quotas={})))
    assert client.free_at == 0.0
    assert not broker.guard.book


@pytest.mark.parametrize("version", range(3, 14))
def test_a_throttle_time_has_its_place_in_every_version(version: int) -> None:
    name: dict[str, Any] = {"topic_id": b"t" * 16} if version >= 13 else {"name": "t"}
    partition = producing.PartitionProduceResponse(index=3, base_offset=7, error_message=None)
    topic = producing.TopicProduceResponse(partition_responses=[partition], **name)
    response = producing.ProduceResponse(responses=[topic])
    throttled = with_throttle_time(version, response.encode(version), 1234)
    response.throttle_time_ms = 1234
    assert throttled == response.encode(version)


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_is_limited_in_every_version(version: int) -> None:
    request = fetching.FetchRequest(max_wait_ms=500, min_bytes=300, max_bytes=1000)
    body = request.encode(version)
    for most, limits in ((100, (100, 100)), (400, (300, 400)), (5000, (300, 1000))):
        changed = fetching.FetchRequest.decode(limited(memoryview(body), 0, version, most), version)
        assert (changed.min_bytes, changed.max_bytes) == limits
        assert changed.max_wait_ms == 500


# -- connections


def test_connections_of_an_address() -> None:
    time = SimpleNamespace(now=0.0)
    rates = ConnectionRates(cast(Any, SimpleNamespace(monotonic=lambda: time.now)), {}, None)
    rates.follow(2**31 - 1, {(("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0}})
    taken = {"10.0.0.1": 0, "10.0.0.2": 0}
    for step in range(6000):
        time.now = step / 100
        for address in taken:
            taken[address] += not rates.opened("PLAINTEXT", address).refused
    assert 5 * MINUTE * 0.95 <= taken["10.0.0.1"] <= 5 * MINUTE * 1.05
    assert taken["10.0.0.2"] == 6000


def test_connections_of_a_listener_and_of_the_broker_wait_for_their_turn() -> None:
    time = SimpleNamespace(now=0.0)
    rates = ConnectionRates(cast(Any, SimpleNamespace(monotonic=lambda: time.now)), {"SLOW": 2}, "INSIDE")
    waits = [rates.opened("SLOW", "h").wait for _ in range(6)]
    assert waits == pytest.approx([0, 0, 0, 0.5, 1.0, 1.5])
    rates.follow(1, {})
    assert [rates.opened("FAST", "h").wait for _ in range(3)] == pytest.approx([0, 0, 1.0])
    assert rates.opened("INSIDE", "h") == (0.0, False)
    while not (turn := rates.opened("SLOW", "h")).refused:
        assert turn.wait < 12
    assert turn.wait == 0.0, "who would wait too long is refused at once"


# -- a broker


@contextlib.asynccontextmanager
async def started(data: Path, **settings: str) -> AsyncIterator[tuple[Node, Client]]:
    flags = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.build(flags={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data), **flags})
    node = Node(env_with(RealDisk()), config)
    try:
        address = await node.start()
        controller: Any = node._controller
        await controller.create_topics([TopicCreation("t", 1, 1)])
        await node.replicas.settled()
        yield node, await connected(address)
    finally:
        await node.stop()


async def connected(address: str) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2])))


async def set_quota(client: Client, entity: dict[str, str | None], **values: float | None) -> int:
    entry = altering.EntryData(
        entity=[altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[altering.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    request = altering.AlterClientQuotasRequest(entries=[entry])
    response = await client.ask(request, altering.AlterClientQuotasResponse, 1)
    return response.entries[0].error_code


def produce_request(size: int) -> producing.ProduceRequest:
    partition = producing.PartitionProduceData(index=0, records=build_batch([bytes(size)]))
    topic = producing.TopicProduceData(name="t", partition_data=[partition])
    return producing.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


def fetch_request(max_bytes: int = MB, session_id: int = 0, session_epoch: int = -1) -> fetching.FetchRequest:
    partition = fetching.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MB)
    topic = fetching.FetchTopic(topic="t", partitions=[partition])
    return fetching.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[topic] if session_epoch <= 0 else [],
    )


async def test_a_producer_is_told_and_not_read_from(tmp_path: Path) -> None:
    async with started(tmp_path) as (_, client):
        assert await set_quota(client, {"client-id": None}, producer_byte_rate=20_000.0) == 0
        for version in (3, 9):
            answer = await client.ask(produce_request(21_000), producing.ProduceResponse, version)
            assert answer.throttle_time_ms > 0
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert await set_quota(client, {"client-id": None}, producer_byte_rate=None) == 0
        answer = await client.ask(produce_request(24_000), producing.ProduceResponse, 9)
        assert answer.throttle_time_ms == 0


async def test_a_consumer_gets_nothing_and_is_told(tmp_path: Path) -> None:
    """In a session too, which goes on with the next request."""
    async with started(tmp_path) as (_, client):
        await client.ask(produce_request(100_000), producing.ProduceResponse, 9)
        opened = await client.ask(fetch_request(session_epoch=0), fetching.FetchResponse, 12)
        assert await set_quota(client, {"user": None}, consumer_byte_rate=200_000.0) == 0
        told = 0
        while not told:
            got = await client.ask(fetch_request(), fetching.FetchResponse, 12)
            assert (got.throttle_time_ms == 0) is bool(got.responses)
            told += got.throttle_time_ms
        for epoch in range(1, 5):
            got = await client.ask(
                fetch_request(session_id=opened.session_id, session_epoch=epoch), fetching.FetchResponse, 12
            )
            assert (got.error_code, got.session_id) == (0, opened.session_id)


async def test_other_requests_wait_for_their_share_of_the_loop(tmp_path: Path) -> None:
    async with started(tmp_path) as (node, client):
        assert await set_quota(client, {"user": None}, request_percentage=0.001) == 0
        answers = [await client.ask(MetadataRequest(topics=None), MetadataResponse, 9) for _ in range(2)]
        assert answers[-1].throttle_time_ms > 0
        versions = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 2)
        assert versions.error_code == 0
        gate: Any = node.front.gate
        assert any(family.samples for family in gate.quotas.families())


async def test_changes_of_topics_are_refused_when_too_many(tmp_path: Path) -> None:
    async with started(tmp_path) as (_, client):
        assert await set_quota(client, {"user": None}, controller_mutation_rate=2.0) == 0
        topics = [
            creating.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in (("large", 23), ("late", 1))
        ]
        request = creating.CreateTopicsRequest(topics=topics)
        answer = await client.ask(request, creating.CreateTopicsResponse, 7)
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            "large": ErrorCode.NONE,
            "late": ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        }
        assert 0 < answer.throttle_time_ms <= 500
        assert await set_quota(client, {"user": None}, controller_mutation_rate=None) == 0
        late = creating.CreateTopicsRequest(topics=topics[1:])
        answer = await client.ask(late, creating.CreateTopicsResponse, 7)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)


async def test_a_broker_without_quotas_has_no_guard(tmp_path: Path) -> None:
    async with started(tmp_path) as (node, client):
        dispatcher: Any = node.front.dispatcher
        assert dispatcher._guard is None
        assert await set_quota(client, {"user": "x"}, producer_byte_rate=1.0) == 0
        assert dispatcher._hot[ApiKey.PRODUCE][0] is not plain_produce
        assert await set_quota(client, {"user": "x"}, producer_byte_rate=None) == 0
        assert dispatcher._guard is None
        assert dispatcher._hot[ApiKey.PRODUCE][0] is plain_produce


async def test_too_many_connections_from_an_address_end(tmp_path: Path) -> None:
    async with started(tmp_path) as (node, client):
        assert await set_quota(client, {"ip": "127.0.0.1"}, connection_creation_rate=1.0) == 0
        port = node.front.listeners[0].port
        outcomes = []
        while "ended" not in outcomes:
            late = await connected(f"127.0.0.1:{port}")
            try:
                await late.ask(ApiVersionsRequest(), ApiVersionsResponse, 2)
                outcomes.append("served")
            except (asyncio.IncompleteReadError, ConnectionError):
                outcomes.append("ended")
        assert "served" in outcomes
        assert await set_quota(client, {"ip": "127.0.0.1"}, connection_creation_rate=None) == 0


async def test_the_client_id_comes_before_the_user_in_descriptions(tmp_path: Path) -> None:
    """As Kafka writes it: a client's own tests compare the answer as it is."""
    async with started(tmp_path) as (_, client):
        assert await set_quota(client, {"user": "alice", "client-id": "app"}, producer_byte_rate=5.0) == 0
        request = describing.DescribeClientQuotasRequest(components=[], strict=False)
        response = await client.ask(request, describing.DescribeClientQuotasResponse, 1)
        (entry,) = response.entries or []
        assert [part.entity_type for part in entry.entity] == ["client-id", "user"]


async def test_every_broker_keeps_to_it(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=2) as cluster:
        clients = [await cluster.client(broker_id) for broker_id in (1, 2)]
        entity: Any = {"user": "alice", "client-id": None}
        assert await set_quota(clients[1], entity, producer_byte_rate=5.0, request_percentage=50.0) == 0
        wanted = {
            (("user", "alice"), ("client-id", None)): {"producer_byte_rate": 5.0, "request_percentage": 50.0}
        }
        await cluster.until(lambda: all(cluster.image(broker_id).quotas == wanted for broker_id in (1, 2)))
        await cluster.stop(2)
        await cluster.start(2)
        assert cluster.image(2).quotas == wanted

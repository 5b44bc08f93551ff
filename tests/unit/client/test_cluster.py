"""The way into a cluster, who is asked, and what is tried again."""

from __future__ import annotations

import pytest

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientSettings
from headrace.client.errors import CannotReach, ConnectionLost, NoneReachable, Reason
from headrace.env.real import real_env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.schema import Response
from tests.unit.client.conftest import Serve, broker

SETTINGS = ClientSettings(
    connect_timeout_s=0.5, request_timeout_s=0.5, retry_backoff_s=0.01, retry_backoff_max_s=0.02
)
NOWHERE = Address("127.0.0.1", 1)


def partition(number: int, leader: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=number, leader_id=leader, replica_nodes=[leader], isr_nodes=[leader]
    )


class FakeBroker:
    """A cluster of one, with a topic of two partitions, the second without a leader."""

    def __init__(self) -> None:
        self.address = NOWHERE
        self.advertised: Address | None = None
        self.asked: list[list[str] | None] = []

    def answer(self, key: int, version: int, body: bytes) -> Response:
        request = MetadataRequest.decode(body, version)
        names = None if request.topics is None else [topic.name or "" for topic in request.topics]
        self.asked.append(names)
        assert not request.allow_auto_topic_creation
        advertised = self.advertised or self.address
        topics = [
            MetadataResponseTopic(name="t", partitions=[partition(1, -1), partition(0, 7)])
            if name == "t"
            else MetadataResponseTopic(name=name, error_code=3)
            for name in names or ["t"]
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=7, host=advertised.host, port=advertised.port)],
            controller_id=7,
            cluster_id="c",
            topics=topics if names != [] else [],
        )


@pytest.fixture
async def fake(serve: Serve) -> FakeBroker:
    made = FakeBroker()
    made.address = await serve(broker(made.answer, {3: (0, 12)}))
    return made


def cluster_at(*addresses: Address) -> Cluster:
    return Cluster(real_env(), addresses, SETTINGS)


async def test_the_first_that_answers_is_the_way_in(fake: FakeBroker) -> None:
    async with cluster_at(NOWHERE, fake.address) as cluster:
        view = await cluster.metadata()
        assert view.cluster_id == "c"
        assert [one.number for one in view.topic("t").partitions] == [0, 1]
        assert (await cluster.controller()).address == fake.address


async def test_none_reachable_names_them_all() -> None:
    async with cluster_at(NOWHERE, Address("127.0.0.1", 2)) as cluster:
        with pytest.raises(NoneReachable) as caught:
            await cluster.entry()
    assert [failure.reason for failure in caught.value.failures] == [Reason.REFUSED] * 2


async def test_leaders_missing_topics_and_partitions(fake: FakeBroker) -> None:
    async with cluster_at(fake.address) as cluster:
        assert await cluster.by_leader([TopicPartition("t", 0)]) == {7: [TopicPartition("t", 0)]}
        for name, number, code in (
            ("t", 1, ErrorCode.LEADER_NOT_AVAILABLE),
            ("t", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("nix", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            with pytest.raises(KafkaError) as caught:
                await cluster.by_leader([TopicPartition(name, number)])
            assert caught.value.code == code
        with pytest.raises(KafkaError) as caught:
            await cluster.broker(8)
        assert caught.value.code == ErrorCode.BROKER_NOT_AVAILABLE


async def test_an_advertised_address_that_does_not_work_says_whose_it_is(fake: FakeBroker) -> None:
    fake.advertised = NOWHERE
    async with cluster_at(fake.address) as cluster:
        with pytest.raises(CannotReach) as caught:
            await cluster.retrying(lambda: cluster.broker(7))
    assert (caught.value.broker_id, caught.value.address) == (7, NOWHERE)


async def test_a_connection_is_kept_and_opened_again_when_lost(fake: FakeBroker) -> None:
    async with cluster_at(fake.address) as cluster:
        first = await cluster.broker(7)
        assert await cluster.broker(7) is first
        first.close()
        for _ in range(100):
            if first.closed:
                break
            await cluster.env.clock.sleep(0.001)
        assert await cluster.broker(7) is not first


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), 3),
        (KafkaError(ErrorCode.NOT_CONTROLLER), 3),
        (ConnectionLost(NOWHERE), 3),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 1),
        (KafkaError(ErrorCode.INVALID_CONFIG), 1),
        (CannotReach(NOWHERE, Reason.REFUSED, broker_id=1), 1),
        (NoneReachable([CannotReach(NOWHERE, Reason.REFUSED)]), 1),
    ],
)
async def test_what_is_tried_again(error: Exception, tries: int) -> None:
    calls = 0

    async def attempt() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise error
        return "done"

    cluster = cluster_at(NOWHERE)
    if tries == 1:
        with pytest.raises(type(error)):
            await cluster.retrying(attempt)
    else:
        assert await cluster.retrying(attempt) == "done"
    assert calls == tries


async def test_retries_end_with_the_time() -> None:
    async def attempt() -> None:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)

    with pytest.raises(KafkaError):
        await cluster_at(NOWHERE).retrying(attempt)


async def test_what_must_not_be_done_twice_is_not_tried_after_a_lost_connection() -> None:
    calls = 0

    async def attempt() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionLost(NOWHERE)

    with pytest.raises(ConnectionLost):
        await cluster_at(NOWHERE).retrying(attempt, repeatable=False)
    assert calls == 1

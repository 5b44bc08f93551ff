"""Metadata, DescribeCluster and DescribeTopicPartitions: the image as a client sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.handlers.context import ANONYMOUS, Context
from headrace.handlers.listener_view import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS, ListenerView
from headrace.handlers.metadata import metadata
from headrace.metadata.image import NO_LEADER, BrokerImage, Endpoint, MetadataImage, PartitionImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId, TopicPartition
from headrace.wire.messages.describe_cluster import DescribeClusterRequest
from headrace.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


class CountedLooks:
    """Never due; counts how often it was asked."""

    def __init__(self) -> None:
        self.looks = 0

    def due(self) -> bool:
        self.looks += 1
        return False

    async def give_way(self) -> None: ...


UNKNOWN_ID = TopicId(b"?" * 16)


def ask(*names: str, **more: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **more)


async def test_all_topics_and_none(bench: Any) -> None:
    await bench.create_topic("a", 2)
    await bench.create_topic("__consumer_offsets")
    for request, version, expected in (
        (MetadataRequest(topics=None), 12, ["__consumer_offsets", "a"]),
        (MetadataRequest(topics=[]), 0, ["__consumer_offsets", "a"]),
        (MetadataRequest(topics=[]), 1, []),
    ):
        response = await bench.call(request, version)
        assert sorted(topic.name for topic in response.topics) == expected
    flags = {topic.name: topic.is_internal for topic in (await bench.call(MetadataRequest(topics=None), 9)).topics}
    assert flags == {"a": False, "__consumer_offsets": True}


async def test_what_is_told_of_a_topic_and_the_cluster(bench: Any) -> None:
    topic = await bench.create_topic("a", 2)
    response = await bench.call(ask("a"), 12)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port, broker.rack) == (1, "localhost", 9092, "rack-a")
    assert (response.cluster_id, response.controller_id) == (bench.image.cluster_id, 1)
    (answer,) = response.topics
    assert (answer.error_code, answer.topic_id, len(answer.partitions)) == (0, topic.id, 2)
    last = answer.partitions[1]
    assert (last.partition_index, last.leader_id, last.leader_epoch) == (1, 1, 0)
    assert (last.replica_nodes, last.isr_nodes, last.offline_replicas) == ([1], [1], [])


async def test_a_topic_of_many_partitions_leaves_room_for_others(bench: Any) -> None:
    """100,000 partitions of one topic held up everybody for half a second."""
    await bench.create_topic("a", 200)
    slices = CountedLooks()
    work: Any = metadata(Context(bench.broker, 12, "c", ANONYMOUS, "h", "PLAINTEXT", slices), ask("a"))
    (answer,) = (await work).topics
    assert len(answer.partitions) == 200
    assert slices.looks >= 200


async def test_addresses_are_those_of_the_listener_that_was_asked(bench: Any) -> None:
    assert (await bench.call(ask(), 9, "INSIDE")).brokers[0].port == 9095
    assert (await bench.call(DescribeClusterRequest(), 0, "INSIDE")).brokers[0].host == "inner"


async def test_topics_by_id(bench: Any) -> None:
    topic = await bench.create_topic("a")
    known, unknown = (MetadataRequestTopic(name=None, topic_id=id_) for id_ in (topic.id, UNKNOWN_ID))
    response = await bench.call(MetadataRequest(topics=[known, unknown]), 12)
    assert [(row.error_code, row.name) for row in response.topics] == [
        (ErrorCode.NONE, "a"),
        (ErrorCode.UNKNOWN_TOPIC_ID, None),
    ]
    for version, topics in ((11, [known]), (12, [MetadataRequestTopic(name=None)])):
        response = await bench.call(MetadataRequest(topics=topics), version)
        assert [row.error_code for row in response.topics] == [ErrorCode.INVALID_REQUEST]


async def test_unknown_and_illegal_names(bench: Any) -> None:
    response = await bench.call(ask("nope", "a b", ""), 12)
    assert [row.error_code for row in response.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert not bench.image.topics, "R-TOP-5: nothing is created unless switched on"


async def test_a_topic_named_twice_is_answered_once(bench: Any) -> None:
    await bench.create_topic("a")
    assert len((await bench.call(ask("a", "a"), 9)).topics) == 1


async def test_topics_are_created_by_asking_where_that_is_on(bench_with: Any) -> None:
    """R-TOP-5: off by default, and working when switched on."""
    async with bench_with({"auto.create.topics.enable": "true", "num.partitions": "3"}) as bench:
        refused = await bench.call(ask("new", allow_auto_topic_creation=False), 9)
        assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response = await bench.call(ask("new", "a b"), 9)
        assert [row.error_code for row in response.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert len(response.topics[0].partitions) == 3
        assert bench.partition("new", 2).log.end_offset == 0
        assert (await bench.call(ask("old"), 1)).topics[0].error_code == 0, "v0-3 cannot forbid it"


async def test_a_creation_that_fails_says_why(bench_with: Any) -> None:
    async with bench_with({"auto.create.topics.enable": "true", "default.replication.factor": "3"}) as bench:
        response = await bench.call(ask("new"), 9)
        assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_authorized_operations_are_told_when_asked_for(bench: Any) -> None:
    await bench.create_topic("a")
    request = ask(
        "a", "nope", include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    response = await bench.call(request, 8)
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS == 8096
    operations = [row.topic_authorized_operations for row in response.topics]
    assert operations == [TOPIC_OPERATIONS, NOT_REQUESTED]
    assert TOPIC_OPERATIONS == 3576
    plain = await bench.call(ask("a"), 12)
    assert plain.topics[0].topic_authorized_operations == NOT_REQUESTED


def broker(broker_id: int, *listeners: str) -> BrokerImage:
    endpoints = tuple(Endpoint(name, f"host{broker_id}", 9092, "PLAINTEXT") for name in listeners)
    return BrokerImage(broker_id, 0, endpoints)


@pytest.mark.parametrize("controller", [-1, 2])
def test_a_broker_stands_in_for_a_controller_that_is_not_known_yet(controller: int) -> None:
    """librdkafka waited a minute for a controller whose address it had not been told."""
    image = MetadataImage("c", brokers={1: broker(1, "A")}, controller_id=controller)
    assert ListenerView(image, "A", own_id=1).controller_for_clients == 1
    both = replace(image, brokers={1: broker(1, "A"), 2: broker(2, "A")}, controller_id=2)
    assert ListenerView(both, "A", own_id=1).controller_for_clients == 2


def test_partitions_without_a_reachable_leader() -> None:
    image = MetadataImage("c", brokers={1: broker(1, "A"), 2: broker(2, "B")})
    view = ListenerView(image, "A")
    seen = view.partition(TopicPartition("t", 0), PartitionImage((1, 2, 3), leader=1, leader_epoch=0, isr=(1,)))
    assert (seen.error, seen.leader, seen.offline_replicas) == (ErrorCode.NONE, 1, [3])
    for leader, error in (
        (NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE),
        (3, ErrorCode.LEADER_NOT_AVAILABLE),
        (2, ErrorCode.LISTENER_NOT_FOUND),
    ):
        partition = PartitionImage((1, 2, 3), leader=leader, leader_epoch=0, isr=(1,))
        seen = view.partition(TopicPartition("t", 0), partition)
        assert (seen.error, seen.leader) == (error, NO_LEADER)


class DoubtingFetchers:
    """Of a broker that has lost the connection to a leader, and looks `times` times until it knows more."""

    busy = True

    def __init__(self, times: int) -> None:
        self._times = times

    @property
    def doubted(self) -> set[int]:
        self._times -= 1
        return {1} if self._times >= 0 else set()


async def test_nobody_is_sent_to_a_leader_that_seems_to_have_died(bench: Any, monkeypatch: Any) -> None:
    """A client that is told of it again asks a second later."""
    await bench.create_topic("a")
    monkeypatch.setattr(bench.broker.replicas, "_fetchers", DoubtingFetchers(3))
    (topic,) = (await bench.call(ask("a"), 12)).topics
    assert [(row.error_code, row.leader_id) for row in topic.partitions] == [(ErrorCode.NONE, 1)]
    monkeypatch.setattr(bench.broker.replicas, "_fetchers", DoubtingFetchers(10**9))
    (topic,) = (await bench.call(ask("a"), 12)).topics
    assert [(row.error_code, row.leader_id) for row in topic.partitions] == [
        (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)
    ]


async def test_who_asks_for_topics_hears_of_a_broker_that_left_just_now(bench: Any) -> None:
    """A regression: librdkafka drops what is not named, and forgot the new leaders of its partitions with it."""
    await bench.create_topic("a")
    with_it = replace(bench.image, brokers={**bench.image.brokers, 2: broker(2, "PLAINTEXT")})
    bench.broker.departed.follow(with_it, bench.image)
    named = await bench.call(ask("a"), 12)
    assert [(row.node_id, row.port) for row in named.brokers] == [(1, 9092), (2, 9092)]
    everything = await bench.call(MetadataRequest(topics=None), 12)
    assert [row.node_id for row in everything.brokers] == [1]


async def test_describe_cluster(bench: Any) -> None:
    response = await bench.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 2)
    assert (response.cluster_id, response.controller_id) == (bench.image.cluster_id, 1)
    assert [(row.broker_id, row.port, row.is_fenced) for row in response.brokers] == [(1, 9092, False)]
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS
    for kind, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        with pytest.raises(KafkaError) as refused:
            await bench.call(DescribeClusterRequest(endpoint_type=kind), 1)
        assert refused.value.code == code


def page(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


async def test_partitions_page_by_page_are_all_of_them(bench: Any) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        await bench.create_topic(name, count)
    for limit in range(7):
        seen: list[tuple[str, int]] = []
        cursor = None
        for _ in range(10):
            response = await bench.call(page(limit=limit, cursor=cursor), 0)
            rows = [(topic.name, row.partition_index) for topic in response.topics for row in topic.partitions]
            assert len(rows) <= max(limit, 1)
            assert all(topic.partitions for topic in response.topics), (
                "a page does not begin a topic it has no room for"
            )
            seen += rows
            if response.next_cursor is None:
                break
            cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


async def test_pages_of_named_topics_and_their_errors(bench: Any) -> None:
    await bench.create_topic("b", 2)
    response = await bench.call(page("zz", "b", "a b", "b"), 0)
    assert [(row.name, row.error_code) for row in response.topics] == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("b", ErrorCode.NONE),
        ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for cursor in (("b", -1), ("other", 0)):
        response = await bench.call(page("b", cursor=cursor), 0)
        assert [row.error_code for row in response.topics] == [ErrorCode.INVALID_REQUEST]

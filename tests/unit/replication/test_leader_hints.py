"""A broker that is asked for a partition of another one says who leads it and where that is (KIP-951)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.services.delayed_produce import DelayedProduce, Unacknowledged
from headrace.testing.in_process import connect
from headrace.testing.in_process_cluster import InProcessCluster, running_cluster
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

LED_BY_TWO, LED_BY_THREE = 0, 1


@pytest.fixture(autouse=True)
def _stop_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers stop one after the other here; the last ones need not wait for followers that have gone."""
    monkeypatch.setattr("headrace.services.handover.LIMIT_SECONDS", 0.1)


async def prepare(cluster: InProcessCluster) -> TopicId:
    """A topic whose partitions are led by brokers 2 and 3, known to broker 1."""
    assignments = [
        CreatableReplicaAssignment(partition_index=LED_BY_TWO, broker_ids=[2, 1]),
        CreatableReplicaAssignment(partition_index=LED_BY_THREE, broker_ids=[3, 2]),
    ]
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=assignments)
    client = await cluster.client(1)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == 0, answer
    await cluster.until(lambda: "t" in cluster.image(1).topics)
    for index, leader in ((LED_BY_TWO, 2), (LED_BY_THREE, 3)):
        await cluster.until(partial(leads, cluster, leader, index))
    return answer.topics[0].topic_id


def leads(cluster: InProcessCluster, broker_id: int, index: int) -> bool:
    held = cluster.nodes[broker_id].replicas.by_name.get(b"t", {}).get(index)
    return held is not None and held.is_leader


def batch(index: int) -> PartitionProduceData:
    return PartitionProduceData(index=index, records=bytes(build_batch([NewRecord(b"v", None)])))


def port(cluster: InProcessCluster, broker_id: int) -> int:
    return int(cluster.addresses[broker_id].rpartition(":")[2])


@pytest.mark.parametrize("version", [9, 10, 12, 13])
async def test_produce(tmp_path: Path, version: int) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic_id = await prepare(cluster)
        data = TopicProduceData(partition_data=[batch(LED_BY_TWO), batch(LED_BY_THREE)])
        data.name, data.topic_id = ("", topic_id) if version >= 13 else ("t", data.topic_id)
        request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data])
        answer = await (await cluster.client(1)).ask(request, ProduceResponse, version)
        answers = answer.responses[0].partition_responses
        assert [found.error_code for found in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        if version < 10:
            return
        assert [found.current_leader.leader_id for found in answers] == [2, 3]
        states = [cluster.state(TopicPartition("t", index)) for index in (0, 1)]
        assert [found.current_leader.leader_epoch for found in answers] == [state.leader_epoch for state in states]
        assert {(node.node_id, node.port) for node in answer.node_endpoints} == {
            (broker_id, port(cluster, broker_id)) for broker_id in (2, 3)
        }
        hinted = await connect(f"{answer.node_endpoints[0].host}:{answer.node_endpoints[0].port}")
        request.topic_data[0].partition_data = [batch(answer.node_endpoints[0].node_id - 2)]
        again = await hinted.ask(request, ProduceResponse, version)
        assert again.responses[0].partition_responses[0].error_code == 0
        assert again.node_endpoints == []


@pytest.mark.parametrize("version", [12, 15, 16, 18])
async def test_fetch(tmp_path: Path, version: int) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic_id = await prepare(cluster)
        wants = [FetchPartition(partition=LED_BY_THREE, fetch_offset=0, partition_max_bytes=1000)]
        topic = FetchTopic(partitions=wants)
        topic.topic, topic.topic_id = ("", topic_id) if version >= 13 else ("t", topic.topic_id)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic])
        answer = await (await cluster.client(1)).ask(request, FetchResponse, version)
        found = answer.responses[0].partitions[0]
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version >= 16:
            state = cluster.state(TopicPartition("t", LED_BY_THREE))
            assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (3, state.leader_epoch)
            assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(3, port(cluster, 3))]
        else:
            assert answer.node_endpoints == []


class Deposed:
    """A partition that somebody else leads since its batch was appended."""

    end_offset, leader_epoch = 1, 0
    waiters: dict[Any, None]

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.waiters = {}

    def acknowledged(self, *_: int) -> bool:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_a_produce_that_waited_for_a_leader_that_is_none_any_more(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic_id = await prepare(cluster)
        node = cluster.nodes[1]
        broker = SimpleNamespace(id=1, metadata=SimpleNamespace(image=cluster.image(1)), env=node.replicas._env)
        client = cast(Any, SimpleNamespace(broker=broker, listener="PLAINTEXT"))
        answers = [b"acknowledged"]
        batch = Unacknowledged(cast(Any, Deposed(topic_id)), -1, LED_BY_THREE, answers)
        pending = DelayedProduce(client, 13, 60_000, [(topic_id, answers)], [batch], [])
        pending.wake()
        assert pending.done
        answer = ProduceResponse.decode(cast(bytes, pending.result()), 13, 0)
        assert answer.responses[0].partition_responses[0].current_leader.leader_id == 3
        assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(3, port(cluster, 3))]

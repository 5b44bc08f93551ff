"""What `/metrics` says of replication, on the leader, on the controller and elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.model.topics import TopicPartition
from headrace.replication.host import InSyncChanges
from headrace.testing.in_process_cluster import InProcessCluster, running_cluster
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
UNDER_MINIMUM = "kafka_server_replicamanager_underminisrpartitioncount"
LEADERLESS = "kafka_controller_kafkacontroller_offlinepartitionscount"
ACTIVE = "kafka_controller_kafkacontroller_activecontrollercount"
PARTITION = '{topic="t",partition="0"}'


async def figures(cluster: InProcessCluster, broker_id: int) -> dict[str, float]:
    admin = cluster.nodes[broker_id].front.admin
    assert admin is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if "kafka_" in line or "headrace_" in line)
    return {name: float(value) for name, value in lines if not name.startswith("#")}


async def create(cluster: InProcessCluster, name: str, replicas: list[int], minimum: str) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
        configs=[CreatableTopicConfig(name="min.insync.replicas", value=minimum)],
    )
    client = await cluster.client(1)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == 0, answer


async def test_a_broker_that_is_gone_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.services.handover.LIMIT_SECONDS", 0.1)  # nobody else can lead `alone`
    async with running_cluster(tmp_path, 3, headrace_admin_port="0") as cluster:
        await create(cluster, "t", [1, 2, 3], "3")
        await create(cluster, "alone", [3], "1")
        whole = TopicPartition("t", 0)
        await cluster.until(lambda: all(cluster.image(one).partition(whole) is not None for one in (1, 2, 3)))
        await cluster.until(lambda: len(list(cluster.nodes[1].replicas.all())) == 1)
        before = await figures(cluster, 1)
        assert before["kafka_server_replicamanager_leadercount"] == 1
        assert (before[UNDER_REPLICATED], before[UNDER_MINIMUM], before[LEADERLESS]) == (0, 0, 0)
        assert before[f"kafka_topic_partition_in_sync_replica{PARTITION}"] == 3
        assert before["headrace_registered"] == 1
        assert before["headrace_lease_remaining_seconds"] > 0
        assert sum([(await figures(cluster, one))[ACTIVE] for one in (1, 2, 3)]) == 1
        await cluster.stop(3)
        await cluster.until(lambda: cluster.replica(1, whole).image.isr == (1, 2))  # type: ignore[union-attr]
        lone = TopicPartition("alone", 0)
        await cluster.until(lambda: all(cluster.image(one).partition(lone).leader < 0 for one in (1, 2)))  # type: ignore[union-attr]
        after = await figures(cluster, 1)
        assert (after[UNDER_REPLICATED], after[UNDER_MINIMUM]) == (1, 1)
        assert after["kafka_server_replicamanager_isrshrinks_total"] == 1
        assert after[f"kafka_topic_partition_under_replicated_partition{PARTITION}"] == 1
        follower = await figures(cluster, 2)
        assert follower[UNDER_REPLICATED] == 0, "its leader tells of it"
        assert after[LEADERLESS] + follower[LEADERLESS] == 1, "the one whose only replica is gone"
        await cluster.start(3)
        await cluster.until(lambda: cluster.replica(1, whole).image.isr == (1, 2, 3))  # type: ignore[union-attr]
        assert (await figures(cluster, 1))["kafka_server_replicamanager_isrexpands_total"] == 1


def test_leaving_and_joining_are_counted_by_replica() -> None:
    changes = InSyncChanges()
    changes.note((1, 2, 3), (1, 2, 3))
    changes.note((1, 2, 3), (1,))
    changes.note((1,), (1, 3))
    assert (changes.left, changes.joined) == (2, 1)

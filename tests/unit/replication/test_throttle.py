"""Copies of replicas that are not in sync are limited, on both sides, and only those (KIP-73)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.metadata.image import MetadataImage, PartitionImage, TopicImage
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.replication.throttle import ReplicationThrottle, Side
from headrace.testing.in_process_cluster import InProcessCluster, running_cluster
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.unit.replication.test_moving import create, move

T0 = TopicPartition("t", 0)
TOPIC_ID = TopicId(bytes(range(16)))
TOPIC, BROKER = 2, 4


class StillClock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Held:
    """As much of a partition as a limit looks at."""

    topic_id = TOPIC_ID
    topic_partition = T0
    image = PartitionImage((1, 2, 3), 1, 0, (1, 2))


def image(rate: str | None, replicas: str) -> MetadataImage:
    topic = TopicImage("t", TOPIC_ID, (Held.image,), {"leader.replication.throttled.replicas": replicas})
    configs = {"1": {"leader.replication.throttled.rate": rate}} if rate is not None else {}
    return MetadataImage("c", topics={"t": topic}, topics_by_id={TOPIC_ID: topic}, broker_configs=configs)


def sending(rate: str | None, replicas: str, clock: StillClock | None = None) -> Side:
    throttle = ReplicationThrottle(clock or StillClock(), BrokerConfig.build(flags={"node.id": "1"}))  # type: ignore[arg-type]
    throttle.follow(MetadataImage("c"), image(rate, replicas))
    return throttle.sending


@pytest.mark.parametrize(
    ("rate", "replicas", "follower", "limited"),
    [
        ("1000", "*", 3, True),
        ("1000", "0:1,1:2", 3, True),
        ("1000", "0:2", 3, False),
        ("1000", "1:1", 3, False),
        ("1000", "*", 2, False),
        (None, "*", 3, False),
        ("1000", "", 3, False),
    ],
)
def test_who_is_limited(rate: str | None, replicas: str, follower: int, limited: bool) -> None:
    side = sending(rate, replicas)
    assert (side.active and side.limits(Held(), follower)) == limited  # type: ignore[arg-type]


def test_what_was_copied_is_waited_for() -> None:
    clock = StillClock()
    side = sending("1000", "*", clock)
    assert side.delay() == 0
    side.copied(500)
    assert side.delay() == pytest.approx(0.5)
    side.copied(10_000)
    assert side.delay() == 1.0, "then it is looked again"
    clock.now += 10.5
    assert side.delay() == 0


async def alter(cluster: InProcessCluster, kind: int, name: str, **configs: str) -> None:
    rows = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    client = await cluster.client(1)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await client.ask(request, IncrementalAlterConfigsResponse, 1)
    assert answer.responses[0].error_code == 0, answer


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_move_waits_while_it_is_limited(tmp_path: Path, side: str) -> None:
    """At a byte a second nothing arrives after the first answer; without the limit all of it does."""
    async with running_cluster(tmp_path, 2, replica_fetch_max_bytes="1024") as cluster:
        await create(cluster, [1])
        client = await cluster.client(1)
        for _ in range(20):
            data = [PartitionProduceData(index=0, records=bytes(build_batch([NewRecord(b"x" * 1000)])))]
            topic = TopicProduceData(name="t", partition_data=data)
            produced = await client.ask(
                ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), ProduceResponse, 9
            )
            assert produced.responses[0].partition_responses[0].error_code == 0
        await alter(cluster, TOPIC, "t", **{f"{side}.replication.throttled.replicas": "*"})
        for broker in ("1", "2"):
            await alter(cluster, BROKER, broker, **{f"{side}.replication.throttled.rate": "1"})
        limits = [getattr(cluster.nodes[n].replicas, "sending_limit", None) for n in (1, 2)]
        if side == "leader":
            await cluster.until(lambda: limits[0] is not None and limits[0].active)
        else:
            await cluster.until(lambda: bool(cluster.image(2).topics["t"].configs))
            await cluster.until(lambda: "2" in cluster.image(2).broker_configs)
        assert await move(cluster, 1, [1, 2]) == 0
        await cluster.until(lambda: b"t" in cluster.nodes[2].replicas.by_name)
        await cluster.until(lambda: cluster.replica(2, T0).end_offset > 0)
        for _ in range(50):
            await cluster.until(lambda: True)
        assert cluster.replica(2, T0).end_offset < 20
        assert cluster.state(T0).target == (1, 2)
        for broker in ("1", "2"):
            await alter(cluster, BROKER, broker, **{f"{side}.replication.throttled.rate": "100000000"})
        await cluster.until(lambda: cluster.state(T0).isr == (1, 2))
        assert cluster.replica(2, T0).end_offset == 20

"""R-OPS-8: lag in records and seconds, as the broker itself saw it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.env.real import real_env
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.events import OffsetCommitted
from headrace.groups.settings import GroupSettings
from headrace.groups.topics import TopicsView
from headrace.model.topics import TopicPartition
from headrace.replication.replica_set import ReplicaSet
from headrace.services.lag import Lag, lag_families, lag_json
from headrace.testing.in_process import Client, connect, running_node
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.unit.server.test_admin import get
from tests.unit.services.fakes import FakeClock
from tests.unit.test_node import create, produce


class World:
    """Partitions as plain values, one coordinator, and a clock that moves when told."""

    def __init__(self, partitions: int = 1) -> None:
        self.clock = FakeClock()
        self.partitions = [
            SimpleNamespace(
                topic_partition=TopicPartition("t", index),
                high_watermark=0,
                is_leader=True,
                internal=False,
                log=SimpleNamespace(start_offset=0, batch_at=lambda offset: None),
            )
            for index in range(partitions)
        ]
        self.coordinator = GroupCoordinator(GroupSettings(), TopicsView(), lambda: "id")
        replicas = cast(ReplicaSet, SimpleNamespace(all=lambda: iter(self.partitions)))
        self.lag = Lag(replace(real_env(), clock=self.clock), replicas, lambda: [self.coordinator])

    async def second(self, produced: int = 0) -> None:
        self.partitions[0].high_watermark += produced
        self.clock.advance(1)
        await self.lag.sample()

    def commit(self, offset: int, group: str = "g", partition: int = 0) -> None:
        self.coordinator.apply_all([OffsetCommitted(group, "t", partition, offset, -1, "", self.clock.wall_ms())])

    async def of(self, group: str = "g") -> dict[str, Any]:
        groups: list[dict[str, Any]] = lag_json(await self.lag.groups())["groups"]
        return next(one for one in groups if one["group"] == group)

    async def behind(self) -> tuple[int, float]:
        described = await self.of()
        return described["lag"], described["lag_seconds"]


@pytest.fixture
async def world() -> World:
    world = World()
    await world.lag.sample()
    return world


async def test_lag_grows_with_the_end_and_with_time(world: World) -> None:
    world.commit(0)
    assert await world.behind() == (0, 0)
    await world.second(10)
    for _ in range(30):
        await world.second()
    assert (await world.of())["lag"] == 10
    assert 30 <= (await world.of())["lag_seconds"] <= 31
    world.commit(10)
    assert await world.behind() == (0, 0)


async def test_a_steady_reader_is_as_late_as_it_is_behind(world: World) -> None:
    for _ in range(200):
        await world.second(100)
    world.commit(world.partitions[0].high_watermark - 2_000)
    assert 19 <= (await world.of())["lag_seconds"] <= 21


async def test_a_group_is_as_late_as_its_latest_partition() -> None:
    world = World(2)
    await world.lag.sample()
    world.partitions[1].high_watermark = 5
    await world.second(5)
    for _ in range(10):
        await world.second()
    world.commit(5, partition=0)
    world.commit(3, partition=1)
    described = await world.of()
    assert described["lag"] == 2
    assert 10 <= described["lag_seconds"] <= 11
    assert [one["lag"] for one in described["partitions"]] == [0, 2]


async def test_a_position_beyond_the_end_is_no_lag(world: World) -> None:
    world.commit(50)
    assert await world.behind() == (0, 0)


async def test_partitions_come_and_go(world: World) -> None:
    world.commit(0)
    gone = world.partitions.pop()
    world.lag.follow(cast(Any, None), cast(Any, None))
    await world.lag.sample()
    assert (await world.of())["partitions"] == []
    world.partitions.append(gone)
    gone.high_watermark = 8
    world.lag.follow(cast(Any, None), cast(Any, None))
    await world.lag.sample()
    assert (await world.of())["partitions"][0]["lag"] == 8


async def test_metrics_have_the_names_of_the_exporter(world: World) -> None:
    world.commit(1)
    await world.second(4)
    families = {family.name: family.samples for family in lag_families(await world.lag.groups())}
    labels = (("consumergroup", "g"), ("topic", "t"), ("partition", 0))
    assert families["kafka_consumergroup_current_offset"] == [(labels, 1)]
    assert families["kafka_consumergroup_lag"] == [(labels, 3)]
    assert families["kafka_consumergroup_lag_sum"] == [(labels[:2], 3)]
    assert families["kafka_consumergroup_members"] == [(labels[:1], 0)]
    ((seconds_labels, seconds),) = families["headrace_consumergroup_lag_seconds"]
    assert seconds_labels == labels
    assert 0 < seconds <= 1


async def commit(client: Client, group: str, offset: int) -> None:
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
            )
        ],
    )
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    while (await client.ask(find, FindCoordinatorResponse, 4)).coordinators[0].error_code:
        await asyncio.sleep(0.01)
    answer = await client.ask(request, OffsetCommitResponse, 8)
    assert answer.topics[0].partitions[0].error_code == 0


async def settled_page(port: int) -> dict[str, Any]:
    """What /lag says of the only group, once it is loaded and its lag in seconds is known."""
    async with asyncio.timeout(60):
        while True:
            status, body = await get(port, b"GET /lag HTTP/1.1\r\n\r\n")
            assert status == "HTTP/1.1 200 OK"
            for group in json.loads(body)["groups"]:
                assert isinstance(group, dict)
                if group["partitions"] and group["lag_seconds"] is not None:
                    return group
            await asyncio.sleep(0.05)


async def test_a_broker_shows_lag_also_after_a_restart(
    tmp_path: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.services.lag.SAMPLE_SECONDS", 0.05)
    settings = {"headrace_admin_port": str(unused_tcp_port), "offsets_topic_num_partitions": "1"}
    async with running_node(tmp_path, None, **settings) as address:
        client = await connect(address)
        await create(client, "t")
        await produce(client, "t", b"one", b"two", b"three")
        await commit(client, "readers", 1)
        page = await settled_page(unused_tcp_port)
        assert (page["group"], page["state"], page["type"]) == ("readers", "Empty", "classic")
        (partition,) = page["partitions"]
        assert (partition["current_offset"], partition["log_end_offset"], partition["lag"]) == (1, 3, 2)
        metrics = (await get(unused_tcp_port, b"GET /metrics HTTP/1.1\r\n\r\n"))[1]
        assert 'kafka_consumergroup_lag{consumergroup="readers",topic="t",partition="0"} 2\n' in metrics
    async with running_node(tmp_path, None, **settings):
        page = await settled_page(unused_tcp_port)
        # This test's record builder gives its records the timestamp 0: what a broker has from before its start.
        assert page["lag"] == 2
        assert page["lag_seconds"] > 0

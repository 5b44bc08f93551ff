"""Names, sizes, times: what an operator may rule, and change while the broker runs, without a restart."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.config.settings import BROKER_SETTINGS, ConfigError
from headrace.model.errors import ErrorCode
from headrace.records.builder import NewRecord, build_batch
from headrace.testing.in_process import Client, connect, running_node
from headrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC, BROKER = 2, 4
HOUR_MS = 3_600_000


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    async with running_node(tmp_path, offsets_topic_num_partitions="1") as running:
        yield running


async def create(client: Client, name: str, **configs: str) -> CreatableTopicResult:
    pairs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=pairs)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
    return answer.topics[0]


async def alter(client: Client, kind: int, resource: str, name: str, value: str) -> ErrorCode:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    target = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[target], validate_only=False)
    answer = await client.ask(request, IncrementalAlterConfigsResponse, 1)
    return ErrorCode(answer.responses[0].error_code)


async def produce(
    client: Client, topic: str, *, size: int = 10, timestamp: int | None = None
) -> PartitionProduceResponse:
    when = timestamp if timestamp is not None else now_ms()
    data = [PartitionProduceData(index=0, records=bytes(build_batch([NewRecord(b"x" * size, b"k", when)])))]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    answer = await client.ask(request, ProduceResponse, 9)
    return answer.responses[0].partition_responses[0]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def join(client: Client, group: str) -> int:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    await client.ask(find, FindCoordinatorResponse, 4)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    for _ in range(100):
        error = (await client.ask(request, JoinGroupResponse, 5)).error_code
        if error not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            return error
    raise AssertionError("no coordinator")


async def heartbeat(client: Client, group: str) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m-1",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    return await client.ask(request, ConsumerGroupHeartbeatResponse, 1)


async def test_names_of_topics(address: str) -> None:
    """R-TOP-6: the whole name must match; what exists, and what the broker makes itself, is not touched."""
    client = await connect(address)
    assert (await create(client, "Before")).error_code == 0
    assert await alter(client, BROKER, "", "headrace.topic.name.pattern", "[a-z]+\\.[a-z]+") == 0
    refused = await create(client, "Orders")
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert "headrace.topic.name.pattern" in (refused.error_message or "")
    assert (await create(client, "team.orders2")).error_code == ErrorCode.POLICY_VIOLATION
    assert (await create(client, "team.orders")).error_code == 0
    assert (await produce(client, "Before")).error_code == 0
    assert await join(client, "anything") == ErrorCode.MEMBER_ID_REQUIRED, "the offsets topic could be made"


async def test_ids_of_groups(address: str) -> None:
    """R-TOP-6: for both protocols; a group that exists keeps its name."""
    client = await connect(address)
    assert await join(client, "Before") == ErrorCode.MEMBER_ID_REQUIRED
    assert await alter(client, BROKER, "", "headrace.group.name.pattern", "team-.*") == 0
    assert await join(client, "mine") == ErrorCode.INVALID_GROUP_ID
    assert await join(client, "team-a") == ErrorCode.MEMBER_ID_REQUIRED
    refused = await heartbeat(client, "mine")
    assert refused.error_code == ErrorCode.INVALID_GROUP_ID
    assert "headrace.group.name.pattern" in (refused.error_message or "")
    assert (await heartbeat(client, "team-b")).error_code == 0


@pytest.mark.parametrize("pattern", ["[", "(", "a" * 2000])
async def test_a_pattern_that_is_none_is_refused(address: str, pattern: str) -> None:
    client = await connect(address)
    for name in ("headrace.topic.name.pattern", "headrace.group.name.pattern"):
        assert await alter(client, BROKER, "", name, pattern) == ErrorCode.INVALID_REQUEST
        with pytest.raises(ConfigError, match="Invalid value"):
            BROKER_SETTINGS[name].parse(pattern)


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
async def test_sizes_of_batches(address: str, kind: int) -> None:
    """max.message.bytes of a topic, and message.max.bytes of the brokers, from the next batch on."""
    client = await connect(address)
    assert (await create(client, "t")).error_code == 0
    assert (await produce(client, "t", size=5000)).error_code == 0
    resource, name = ("t", "max.message.bytes") if kind == TOPIC else ("", "message.max.bytes")
    assert await alter(client, kind, resource, name, "1000") == 0
    assert (await produce(client, "t", size=5000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await produce(client, "t", size=500)).error_code == 0
    assert await alter(client, kind, resource, name, "10000") == 0
    assert (await produce(client, "t", size=5000)).error_code == 0


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
@pytest.mark.parametrize(("side", "distance_ms"), [("before", -2 * HOUR_MS), ("after", HOUR_MS // 2)])
async def test_timestamps(address: str, kind: int, side: str, distance_ms: int) -> None:
    """message.timestamp.before.max.ms and .after.max.ms, from the next batch on."""
    client = await connect(address)
    assert (await create(client, "t")).error_code == 0
    far = now_ms() + distance_ms
    assert (await produce(client, "t", timestamp=far)).error_code == 0
    prefix, resource = ("", "t") if kind == TOPIC else ("log.", "")
    name = f"{prefix}message.timestamp.{side}.max.ms"
    assert await alter(client, kind, resource, name, "60000") == 0
    refused = await produce(client, "t", timestamp=far)
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert "out of range" in (refused.error_message or "")
    assert (await produce(client, "t")).error_code == 0


async def test_the_clock_that_stamps(address: str) -> None:
    client = await connect(address)
    assert (await create(client, "t")).error_code == 0
    assert (await produce(client, "t", timestamp=5)).log_append_time_ms == -1
    assert await alter(client, TOPIC, "t", "message.timestamp.type", "LogAppendTime") == 0
    assert (await produce(client, "t", timestamp=5)).log_append_time_ms > now_ms() - HOUR_MS


async def test_a_topic_becomes_compacted(address: str) -> None:
    """cleanup.policy: from then on records need a key."""
    client = await connect(address)
    assert (await create(client, "t")).error_code == 0
    assert await alter(client, TOPIC, "t", "cleanup.policy", "compact") == 0
    data = [PartitionProduceData(index=0, records=bytes(build_batch([NewRecord(b"v")])))]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    answer = await client.ask(request, ProduceResponse, 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD


async def test_a_topics_own_setting_wins_over_the_brokers(address: str) -> None:
    client = await connect(address)
    assert (await create(client, "own", max_message_bytes="8000")).error_code == 0
    assert await alter(client, BROKER, "1", "message.max.bytes", "1000") == 0
    assert (await produce(client, "own", size=5000)).error_code == 0


async def test_the_number_of_connections(address: str) -> None:
    """max.connections: those that are there stay, no more come."""
    client = await connect(address)
    assert await alter(client, BROKER, "1", "max.connections", "1") == 0
    refused = await connect(address)
    with pytest.raises((EOFError, ConnectionError)):
        await create(refused, "t")
    assert await alter(client, BROKER, "1", "max.connections", "5") == 0
    assert (await create(await connect(address), "t")).error_code == 0


async def test_settings_survive_a_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path) as address:
        client = await connect(address)
        assert (await create(client, "t")).error_code == 0
        assert await alter(client, TOPIC, "t", "max.message.bytes", "1000") == 0
        assert await alter(client, BROKER, "", "headrace.topic.name.pattern", "[a-z]") == 0
    async with running_node(tmp_path) as address:
        client = await connect(address)
        assert (await produce(client, "t", size=5000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await create(client, "UP")).error_code == ErrorCode.POLICY_VIOLATION

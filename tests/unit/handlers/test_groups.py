"""R-CON-2, R-CON-3: the coordinator of a real broker: made, loaded, resigned, with topics that come and go.

What requests are answered with is in tests/compat/test_groups_errors.py, where Apache Kafka takes the same tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from headrace.handlers.produce import produce
from headrace.metadata.image import MetadataImage, TopicImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import CONSUMER_OFFSETS_TOPIC, TopicPartition
from headrace.replication.partition import Partition
from headrace.services.groups.hashing import partition_of
from headrace.services.groups.service import GroupService
from headrace.services.shards import ShardState
from headrace.testing.raw_client import build_batch, produce_body, request_header
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.list_groups import ListGroupsRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

SETTINGS = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
BenchWith = Callable[[Mapping[str, str]], AbstractAsyncContextManager[Any]]


@pytest.fixture
async def groups(bench_with: BenchWith) -> AsyncIterator[Any]:
    """A bench with a topic `t` of two partitions, ready to coordinate."""
    async with bench_with(SETTINGS) as bench:
        await bench.create_topic("t", 2)
        found = await bench.call(FindCoordinatorRequest(key="g"), 2)
        assert found.error_code == ErrorCode.NONE
        yield bench


async def commit(bench: Any, group: str, offset: int, topic: str = "t", partition: int = 0) -> int:
    one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])])
    return int((await bench.call(request, 7)).topics[0].partitions[0].error_code)


async def fetch(bench: Any, group: str, topic: str = "t") -> tuple[int, int]:
    """The error of the group, and the offset."""
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    )
    response = await bench.call(request, 5)
    offset = response.topics[0].partitions[0].committed_offset if response.topics else -1
    return response.error_code, offset


def join(group: str) -> JoinGroupRequest:
    """As version 2, in which a new member waits at once."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def taken_over(bench: Any) -> GroupService:
    """Another service on the same partitions, as if the coordinator had moved here."""
    broker = bench.broker
    broker.groups.close()
    service = GroupService(broker.env, broker.config, broker.metadata, broker.controller, broker.replicas)
    service.follow(MetadataImage(""), broker.metadata.image)
    return service


async def loaded(service: GroupService) -> None:
    while any(shard.state is ShardState.LOADING for shard in service._shards):
        await asyncio.sleep(0.001)


# -- the topic


async def test_the_first_question_makes_the_topic(bench: Any) -> None:
    assert CONSUMER_OFFSETS_TOPIC not in bench.image.topics
    assert await fetch(bench, "g") == (ErrorCode.NOT_COORDINATOR, -1)
    found = await asyncio.gather(*(bench.call(FindCoordinatorRequest(key=f"g{n}"), 3) for n in range(5)))
    assert {(one.error_code, one.node_id, one.host, one.port) for one in found} == {(0, 1, "localhost", 9092)}
    topic = bench.image.topics[CONSUMER_OFFSETS_TOPIC]
    assert (len(topic.partitions), len(topic.partitions[0].replicas)) == (50, 1)
    assert topic.internal
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert await fetch(bench, "g") == (ErrorCode.NONE, -1)


async def test_asking_for_it_by_name_makes_it_as_it_should_be(bench_with: BenchWith) -> None:
    async with bench_with({**SETTINGS, "auto.create.topics.enable": "true"}) as bench:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=CONSUMER_OFFSETS_TOPIC)])
        (topic,) = (await bench.call(request, 12)).topics
        assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 4)
        assert bench.image.topics[CONSUMER_OFFSETS_TOPIC].configs["cleanup.policy"] == "compact"


async def test_the_address_is_that_of_the_listener(groups: Any) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["a", "b"])
    response = await groups.call(request, 4, "INSIDE")
    assert [(one.key, one.host, one.port) for one in response.coordinators] == [
        ("a", "inner", 9095),
        ("b", "inner", 9095),
    ]
    unknown = await groups.call(request, 4, "NOWHERE")
    assert {one.error_code for one in unknown.coordinators} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_without_a_controller_there_is_no_coordinator_yet(bench: Any) -> None:
    await bench.broker.controller.close()
    response = await bench.call(FindCoordinatorRequest(key="g"), 2)
    assert (response.error_code, response.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize(("client_id", "error"), [("me", 17), (None, 17), ("__admin_client", 0)])
async def test_clients_do_not_write_there(groups: Any, client_id: str | None, error: int) -> None:
    """As in Kafka, with the one exception that lets an operator repair the topic by hand."""
    header = request_header(0, 8, 1, client_id)
    body = produce_body(CONSUMER_OFFSETS_TOPIC, 0, build_batch([None], key=b"\0\x63"))
    channel = Mock(broker=groups.broker)
    answer = produce(channel, 8, memoryview(bytearray(header + body)), len(header))
    assert isinstance(answer, bytes)
    position = 4 + 2 + len(CONSUMER_OFFSETS_TOPIC) + 4 + 4
    assert int.from_bytes(answer[position : position + 2], "big") == error


# -- what is stored


async def test_commits_of_one_turn_share_a_batch(groups: Any) -> None:
    partition = groups.partition(CONSUMER_OFFSETS_TOPIC, partition_of("g", 4))
    errors = await asyncio.gather(*(commit(groups, "g", offset) for offset in range(20)))
    assert errors == [0] * 20
    assert partition.log.end_offset == 20
    assert partition.log.batch_at(0).size == partition.log.size, "twenty records, one batch"
    assert await fetch(groups, "g") == (0, 19)


async def test_a_new_coordinator_finds_what_was_acknowledged(groups: Any) -> None:
    for number in range(40):
        assert await commit(groups, f"g{number}", number) == 0
    service = taken_over(groups)
    assert {shard.state for shard in service._shards} == {ShardState.LOADING}
    await loaded(service)
    found = {group.group_id for coordinator in service.coordinators() for group in coordinator.list_groups()}
    assert found == {f"g{number}" for number in range(40)}
    for number in range(40):
        stored = service.coordinator(f"g{number}").offsets.get(f"g{number}", TopicPartition("t", 0))
        assert stored is not None
        assert stored.offset == number
    service.close()


async def test_a_commit_waits_for_the_disk_where_the_topic_says_so(bench_with: BenchWith) -> None:
    """R-LOG-6: with flush.messages=1 a record counts once it is on the device, and so does a position."""
    async with bench_with({**SETTINGS, "log.flush.interval.messages": "1"}) as bench:
        await bench.create_topic("t")
        await bench.call(FindCoordinatorRequest(key="g"), 2)
        partition = bench.partition(CONSUMER_OFFSETS_TOPIC, partition_of("g", 4))
        errors = await asyncio.gather(*(commit(bench, "g", offset) for offset in range(20)))
        assert errors == [0] * 20
        assert partition.log.recovery_point == partition.log.end_offset == 20
        assert await fetch(bench, "g") == (0, 19)


async def test_a_coordinator_begins_when_all_of_its_log_is_replicated(groups: Any) -> None:
    """To the end of the log, which may be beyond the high watermark when the lead is taken."""
    assert await commit(groups, "g", 7) == 0
    partition = groups.partition(CONSUMER_OFFSETS_TOPIC, partition_of("g", 4))
    partition.high_watermark = 0
    service = taken_over(groups)
    await asyncio.sleep(0.02)
    assert service.shard("g").state is ShardState.LOADING
    partition._advance_high_watermark()
    await loaded(service)
    stored = service.coordinator("g").offsets.get("g", TopicPartition("t", 0))
    assert stored is not None
    assert stored.offset == 7
    assert not partition.waiters
    service.close()


async def test_it_resigns_while_it_loads(groups: Any) -> None:
    assert await commit(groups, "g", 7) == 0
    partition = groups.partition(CONSUMER_OFFSETS_TOPIC, partition_of("g", 4))
    partition.high_watermark = 0
    service = taken_over(groups)
    await asyncio.sleep(0.02)
    shard = service.shard("g")
    service.close()
    await asyncio.sleep(0.01)
    assert shard.state is ShardState.RESIGNED
    assert not partition.waiters


async def test_a_topic_is_deleted_while_it_loads(groups: Any) -> None:
    await groups.create_topic("u")
    for topic in ("t", "u"):
        assert await commit(groups, "g", 5, topic) == 0
    old = groups.image
    service = taken_over(groups)
    await groups.broker.controller.delete_topics(["u"])
    service.follow(old, groups.image)
    await loaded(service)
    await asyncio.sleep(0.01)
    offsets = service.coordinator("g").offsets
    assert [place.topic for place in offsets.of_group("g")] == ["t"]
    service.close()


async def test_while_it_loads(groups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await commit(groups, "g", 7) == 0
    service = taken_over(groups)
    monkeypatch.setattr(groups, "broker", replace(groups.broker, groups=service))
    busy = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await fetch(groups, "g") == (busy, -1)
    waits = asyncio.ensure_future(commit(groups, "g", 8))
    assert (await groups.call(join("g"), 2)).error_code == busy
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await groups.call(ListGroupsRequest(), 0)
    await loaded(service)
    assert await waits == 0
    assert await fetch(groups, "g") == (0, 8)
    service.close()


async def test_what_cannot_be_read_is_not_guessed(groups: Any) -> None:
    """A broken record: no coordinator is better than one that forgot something."""
    partition = groups.partition(CONSUMER_OFFSETS_TOPIC, partition_of("g", 4))
    assert await commit(groups, "g", 7) == 0
    partition.append(memoryview(bytearray(build_batch([b"\0\x63"], key=b"\0\1\0\1g\0\1t\0\0\0\0"))), -1)
    service = taken_over(groups)
    await loaded(service)
    assert service.shard("g").state is ShardState.FAILED
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        service.coordinator("g")
    service.close()


async def test_a_failed_append_changes_nothing(groups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(partition: Partition, batch: bytearray) -> int:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    assert await commit(groups, "g", 7) == 0
    monkeypatch.setattr(Partition, "append_own", refuse)
    assert await commit(groups, "g", 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await fetch(groups, "g") == (0, 7)
    monkeypatch.undo()
    assert await commit(groups, "g", 9) == 0
    assert await fetch(groups, "g") == (0, 9)


# -- changes around it


async def test_those_who_wait_are_sent_on(groups: Any) -> None:
    """The lead is lost while a join is parked: the client hears it at once and looks for the new coordinator."""
    first = await groups.call(join("g"), 2)
    assert first.error_code == 0
    parked = asyncio.create_task(groups.call(join("g"), 2))
    await asyncio.sleep(0.01)
    assert not parked.done()
    groups.broker.groups.close()
    assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
    assert await commit(groups, "g", 1) == ErrorCode.NOT_COORDINATOR


async def test_the_topic_itself_is_deleted(groups: Any) -> None:
    assert await commit(groups, "g", 7) == 0
    await groups.broker.controller.delete_topics([CONSUMER_OFFSETS_TOPIC])
    await groups.broker.replicas.settled()
    assert await fetch(groups, "g") == (ErrorCode.NOT_COORDINATOR, -1)
    assert (await groups.call(FindCoordinatorRequest(key="g"), 2)).error_code == 0
    assert await fetch(groups, "g") == (0, -1)


async def test_positions_go_with_their_topic(groups: Any) -> None:
    await groups.create_topic("u", 1)
    for group in ("g", "h"):
        for topic in ("t", "u"):
            assert await commit(groups, group, 5, topic) == 0
    await groups.broker.controller.delete_topics(["u"])
    await groups.broker.replicas.settled()
    for group in ("g", "h"):
        assert await fetch(groups, group, "u") == (0, -1)
        assert await fetch(groups, group) == (0, 5)
    assert await commit(groups, "g", 5, "u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    service = taken_over(groups)
    await loaded(service)
    assert service.coordinator("g").offsets.get("g", TopicPartition("u", 0)) is None
    service.close()


async def test_a_topic_made_anew_has_no_positions(groups: Any) -> None:
    """Even when deletion and creation are seen at once."""
    assert await commit(groups, "g", 5) == 0
    old = groups.image
    await groups.broker.controller.delete_topics(["t"])
    await groups.create_topic("t", 2)
    groups.broker.groups.follow(old, groups.image)
    await asyncio.sleep(0.01)
    assert await fetch(groups, "g") == (0, -1)


async def test_new_topics_are_seen(groups: Any) -> None:
    before = groups.broker.groups.coordinator("g")._topics
    assert groups.broker.groups.coordinator("g")._topics is before
    topic: TopicImage = await groups.create_topic("v", 3)
    view = groups.broker.groups.coordinator("g")._topics
    assert view.by_name["v"].partition_count == 3
    assert view.by_id[topic.id].name == "v"


async def test_offsets_expire(bench_with: BenchWith, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench_with({**SETTINGS, "offsets.retention.check.interval.ms": "20"}) as bench:
        await bench.create_topic("t")
        await bench.call(FindCoordinatorRequest(key="g"), 2)
        assert await commit(bench, "g", 5) == 0
        expiry = asyncio.create_task(bench.broker.groups.run())
        await asyncio.sleep(0.06)
        assert await fetch(bench, "g") == (0, 5)
        clock = bench.broker.env.clock
        monkeypatch.setattr(type(clock), "wall_ms", lambda self: 10**13)
        async with asyncio.timeout(60):
            while await fetch(bench, "g") != (0, -1):
                await asyncio.sleep(0.01)
        assert (await bench.call(ListGroupsRequest(), 0)).groups == []
        expiry.cancel()

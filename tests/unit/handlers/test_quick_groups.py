"""The quick handlers of group requests answer what the cold ones would, and leave them what is not usual."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.groups.events import ClassicProtocol
from headrace.groups.messages import JoinGroup
from headrace.handlers.context import ANONYMOUS
from headrace.handlers.registry import APIS
from headrace.metadata.controller import NewPartitions
from headrace.model.errors import ErrorCode
from headrace.services.groups.answer import Answer
from headrace.services.groups.quick_commit import QuickCommit
from headrace.services.reply import NOT_QUICK, Pending
from headrace.testing.in_process import Client, connect, running_node
from headrace.testing.raw_client import request_header
from headrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.heartbeat import HeartbeatRequest
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.schema import Request

BenchWith = Callable[[Mapping[str, str]], AbstractAsyncContextManager[Any]]
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
async def bench(bench_with: BenchWith) -> AsyncIterator[Any]:
    async with bench_with(SETTINGS) as running:
        await running.create_topic("t", 2)
        await running.call(FindCoordinatorRequest(key="g"), 2)
        yield running


def quick(bench: Any, request: Request, version: int) -> Any:
    """What the quick handler says."""
    handler = APIS[request.api_key].quick
    assert handler is not None
    header = request_header(request.api_key, version, 1, "test") + b"\0" * (version >= request.flexible_since)
    channel = SimpleNamespace(broker=bench.broker, principal=ANONYMOUS, client_host="127.0.0.1")
    return handler(channel, version, memoryview(header + request.encode(version)), len(header))


async def same(bench: Any, request: Request, version: int) -> None:
    """The quick answer, which is that of the cold handler."""
    body = quick(bench, request, version)
    assert isinstance(body, bytes)
    assert body == (await bench.call(request, version)).encode(version)


async def joined(bench: Any, instance: str | None = None) -> tuple[str, int]:
    """A stable classic group of one."""

    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    answer = await bench.call(join(""), 5)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await bench.call(join(answer.member_id), 5)
    own = SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"mine")
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        group_instance_id=instance,
        assignments=[own],
    )
    assert (await bench.call(sync, 3)).error_code == ErrorCode.NONE
    return answer.member_id, answer.generation_id


async def test_heartbeats_of_a_stable_member(bench: Any) -> None:
    member, generation = await joined(bench)
    await same(bench, HeartbeatRequest(group_id="g", generation_id=generation, member_id=member), 4)
    wrongs: list[dict[str, Any]] = [
        {"generation_id": generation + 1},
        {"member_id": "nobody"},
        {"group_id": "none"},
        {"group_instance_id": "seat"},
    ]
    for wrong in wrongs:
        fields: dict[str, Any] = {"group_id": "g", "generation_id": generation, "member_id": member}
        request = HeartbeatRequest(**fields | wrong)
        assert quick(bench, request, 4) is NOT_QUICK, wrong
    old = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    assert quick(bench, old, 3) is NOT_QUICK


async def test_heartbeats_of_a_static_member(bench: Any) -> None:
    member, generation = await joined(bench, "seat")
    fields: dict[str, Any] = {"group_id": "g", "generation_id": generation, "member_id": member}
    await same(bench, HeartbeatRequest(**fields, group_instance_id="seat"), 4)
    assert quick(bench, HeartbeatRequest(**fields, group_instance_id="other"), 4) is NOT_QUICK


async def test_a_heartbeat_while_the_group_rebalances(bench: Any) -> None:
    member, generation = await joined(bench)
    newcomer = JoinGroup("g", "", "consumer", (ClassicProtocol("range", b""),), 10_000, 10_000, version=3)
    assert isinstance(bench.broker.groups.begin(newcomer), Answer)
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    assert quick(bench, request, 4) is NOT_QUICK
    assert (await bench.call(request, 4)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_consumer_heartbeats_with_nothing_to_say(bench: Any) -> None:
    join = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert quick(bench, join, 1) is NOT_QUICK
    assert (await bench.call(join, 1)).member_epoch == 1
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    await same(bench, request, 1)
    await same(bench, request, 0)
    wrongs: list[dict[str, Any]] = [
        {"member_epoch": 2},
        {"member_epoch": -1},
        {"member_id": "nobody"},
        {"group_id": "none"},
    ]
    for wrong in wrongs:
        fields: dict[str, Any] = {"group_id": "g", "member_id": "m", "member_epoch": 1}
        other = ConsumerGroupHeartbeatRequest(**fields | wrong)
        assert quick(bench, other, 1) is NOT_QUICK, wrong
    await bench.create_topic("another")
    await same(bench, request, 1)
    await same(bench, ConsumerGroupHeartbeatRequest(**{**vars(request), "topic_partitions": []}), 1)
    second = ConsumerGroupHeartbeatRequest(**{**vars(join), "member_id": "m2"})
    assert (await bench.call(second, 1)).error_code == ErrorCode.NONE
    await same(bench, request, 1)  # the next assignment has to wait, and so have they
    shortest = {"g": {"consumer.assignment.interval.ms": "0"}}
    bench.broker.metadata._image = replace(bench.image, group_configs=shortest)
    assert quick(bench, request, 1) is NOT_QUICK, "there is something to be done"
    assert (await bench.call(request, 1)).assignment is not None


async def test_a_consumer_heartbeat_after_the_topic_grew(bench: Any) -> None:
    join = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    await bench.call(join, 1)
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    await same(bench, request, 1)
    await bench.broker.controller.create_partitions([NewPartitions("t", 3)])
    assert quick(bench, request, 1) is NOT_QUICK


def commit_of(offset: int, partition: int = 0, topic: str = "t", **fields: Any) -> OffsetCommitRequest:
    one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[one])]
    return OffsetCommitRequest(**{"group_id": "g", "topics": topics} | fields)


async def test_commits(bench: Any) -> None:
    pending = quick(bench, commit_of(5), 9)
    assert isinstance(pending, Pending)
    assert not pending.done, "its records are not stored yet"
    arrived: list[bytes] = []
    pending.when_done(lambda: arrived.append(bytes(pending.result())))  # type: ignore[arg-type]
    gone = quick(bench, commit_of(6), 9)
    gone.cancel()
    assert (await bench.call(commit_of(7), 9)).topics[0].partitions[0].error_code == ErrorCode.NONE
    (body,) = arrived
    assert body == (await bench.call(commit_of(8), 9)).encode(9)
    refused = quick(bench, commit_of(1, generation_id_or_member_epoch=3, member_id="m"), 9)
    assert OffsetCommitResponse.decode(refused, 9).topics[0].partitions[0].error_code
    for request in (commit_of(1, partition=2), commit_of(1, topic="none"), OffsetCommitRequest(group_id="g")):
        assert quick(bench, request, 9) is NOT_QUICK
    assert quick(bench, commit_of(1), 7) is NOT_QUICK


async def answered(bench: Any, request: OffsetCommitRequest, version: int) -> tuple[Any, bytes]:
    """What the quick handler made of it in the end, and what the cold one makes of the same."""
    found = quick(bench, request, version)
    cold = (await bench.call(request, version)).encode(version)
    return (found.result() if isinstance(found, Pending) else found), cold


async def test_commits_of_members(bench: Any) -> None:
    member, generation = await joined(bench)
    classic: dict[str, Any] = {"generation_id_or_member_epoch": generation, "member_id": member}
    assert isinstance(quick(bench, commit_of(5, **classic), 9), QuickCommit)
    several = commit_of(6, **classic)
    several.topics[0].partitions.append(OffsetCommitRequestPartition(partition_index=1, committed_offset=7))
    join = ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert (await bench.call(join, 1)).member_epoch == 1
    consumer: dict[str, Any] = {"group_id": "c", "generation_id_or_member_epoch": 1, "member_id": "m"}
    assert isinstance(quick(bench, commit_of(5, **consumer), 9), QuickCommit)
    for request in (
        commit_of(5, **classic),
        several,
        commit_of(5, **classic | {"generation_id_or_member_epoch": generation + 1}),
        commit_of(5, **classic | {"member_id": "nobody"}),
        commit_of(5, **classic | {"group_instance_id": "seat"}),
        commit_of(5, **consumer),
        commit_of(5, **consumer | {"generation_id_or_member_epoch": 2}),
        commit_of(5, **consumer | {"member_id": "nobody"}),
    ):
        found, expected = await answered(bench, request, 9)
        assert found == expected
    too_old, expected = await answered(bench, commit_of(5, **consumer), 8)
    assert too_old == expected
    assert OffsetCommitResponse.decode(too_old, 8).topics[0].partitions[0].error_code


async def test_an_answer_that_cannot_be_made_ends_its_connection_and_leaves_the_group_alone(bench: Any) -> None:
    broken = quick(bench, commit_of(5), 9)
    broken._topics = None  # our bug
    broken.when_done(lambda: None)
    assert (await bench.call(commit_of(6), 9)).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert broken.done
    with pytest.raises(TypeError):
        broken.result()
    assert bench.broker.groups.shard("g").refusal("g") is None


async def test_what_was_committed_is_seen_by_the_next_request_of_the_connection(tmp_path: Path) -> None:
    """All of them sent at once: each is handled after the one before it was answered."""
    async with running_node(tmp_path, offsets_topic_num_partitions="1") as address:
        client: Client = await connect(address)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), CreateTopicsResponse, 5)
        await client.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
        fetch = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
        for offset in range(20):
            client.send(commit_of(offset), 9)
            client.send(fetch, 7)
        for offset in range(20):
            stored = await client.answer(OffsetCommitResponse, 9)
            assert stored.topics[0].partitions[0].error_code == ErrorCode.NONE
            found = await client.answer(OffsetFetchResponse, 7)
            assert found.topics[0].partitions[0].committed_offset == offset
        beat = ConsumerGroupHeartbeatRequest(group_id="k", member_id="m", member_epoch=9)
        answer = await client.ask(beat, ConsumerGroupHeartbeatResponse, 1)
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND, "not quick, and answered all the same"


async def test_small_segments_of_the_internal_topics_do_not_leave_groups_without_a_coordinator(
    bench_with: BenchWith,
) -> None:
    """A topic's segments have at least a megabyte: a smaller setting was refused, and the topic never made."""
    settings = {"offsets.topic.segment.bytes": "1000", "transaction.state.log.segment.bytes": "1"}
    async with bench_with(SETTINGS | settings) as running:
        for kind in (0, 1):
            found = await running.call(FindCoordinatorRequest(key="g", key_type=kind), 2)
            assert found.error_code == ErrorCode.NONE
        topics = running.broker.metadata.image.topics.values()
        assert {topic.configs["segment.bytes"] for topic in topics} == {"1048576"}

"""A leader that is about to stop names the next one, where producers that come before the election wait for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.handlers import early_produce
from headrace.handlers.early_produce import EarlyProduce
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.services.departing import Departing
from headrace.testing.in_process import Client
from headrace.testing.in_process_cluster import InProcessCluster, running_cluster
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.unit.replication import test_three_brokers

T0 = TopicPartition("t", 0)
WITH_HINTS = 12


async def create(cluster: InProcessCluster, replicas: list[int]) -> None:
    """And until all are in sync and know it."""
    await test_three_brokers.create(cluster, 1, replicas)
    await cluster.until(lambda: cluster.replica(replicas[0], T0).is_leader)
    await cluster.until(lambda: all(cluster.replica(n, T0).follows for n in replicas[1:]))
    await cluster.until(lambda: all(in_sync(cluster, n) == set(replicas) for n in cluster.nodes))


def in_sync(cluster: InProcessCluster, broker_id: int) -> set[int]:
    state = cluster.nodes[broker_id].replicas.image.partition(T0)
    return set() if state is None else set(state.isr)


def departing(cluster: InProcessCluster, broker_id: int) -> Departing:
    handover = cluster.nodes[broker_id]._handover
    assert handover is not None
    return handover._departing


def request(acks: int) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=bytes(build_batch([NewRecord(b"v", None)])))]
    topics = [TopicProduceData(name="t", partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=topics)


async def produce(client: Client, acks: int = -1, version: int = WITH_HINTS) -> ProduceResponse:
    return await client.ask(request(acks), ProduceResponse, version)


def error(answer: ProduceResponse) -> int:
    return answer.responses[0].partition_responses[0].error_code


def named(answer: ProduceResponse) -> list[int]:
    """Who leads, as the answer tells: for the partition and with an address."""
    leader = answer.responses[0].partition_responses[0].current_leader.leader_id
    assert [node.node_id for node in answer.node_endpoints] == ([leader] if leader != -1 else [])
    return [node.port for node in answer.node_endpoints]


def port(cluster: InProcessCluster, broker_id: int) -> int:
    return int(cluster.addresses[broker_id].rpartition(":")[2])


@pytest.mark.parametrize("acks", [1, 2, -1])
async def test_names_the_next_leader_with_a_success(tmp_path: Path, acks: int) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, [1, 2, 3])
        client = await cluster.client(1)
        before = await produce(client, acks)
        assert (error(before), named(before)) == (0, [])
        await departing(cluster, 1).announce()
        answer = await produce(client, acks)
        assert (error(answer), named(answer)) == (0, [port(cluster, 2)])
        hint = answer.responses[0].partition_responses[0].current_leader
        assert hint.leader_epoch == cluster.state(T0).leader_epoch, "metadata is believed again"
        older = await produce(client, acks, version=9)
        assert (error(older), named(older)) == (0, [])
        departing(cluster, 1).stay()
        after = await produce(client, acks)
        assert (error(after), named(after)) == (0, [])


async def test_who_was_not_told_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would wait for the election there."""
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, [1, 2, 3])
        leaving = departing(cluster, 1)
        tell = leaving._tell

        async def told(broker: int) -> bool:
            return broker != 2 and await tell(broker)

        monkeypatch.setattr(leaving, "_tell", told)
        await leaving.announce()
        answer = await produce(await cluster.client(1))
        assert (error(answer), named(answer)) == (0, [])


async def test_another_is_named_when_the_next_leader_is_gone(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, [1, 2, 3])
        client = await cluster.client(1)
        await departing(cluster, 1).announce()
        assert named(await produce(client)) == [port(cluster, 2)]
        await cluster.stop(2)
        await cluster.until(lambda: in_sync(cluster, 1) == {1, 3})
        assert named(await produce(client)) == [port(cluster, 3)]


async def test_the_only_replica_names_nobody(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 2) as cluster:
        await create(cluster, [1])
        await departing(cluster, 1).announce()
        answer = await produce(await cluster.client(1))
        assert (error(answer), named(answer)) == (0, [])


async def test_what_comes_early_waits_for_the_election_in_its_order(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, [1, 2, 3])
        client = await cluster.client(2)
        assert error(await produce(client)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await departing(cluster, 1).announce()
        for acks in (-1, 1, 2):
            client.send(request(acks), WITH_HINTS)
        early = asyncio.ensure_future(client.answer(ProduceResponse, WITH_HINTS))
        await cluster.until(lambda: bool(cluster.replica(2, T0).waiters))
        assert (await produce(await cluster.client(1))).responses[0].partition_responses[0].base_offset == 0
        assert not early.done()
        handover = cluster.nodes[1]._handover
        assert handover is not None
        await handover._until_others_lead()
        answers = [await early, *[await client.answer(ProduceResponse, WITH_HINTS) for _ in range(2)]]
        found = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [(one.error_code, one.base_offset) for one in found] == [(0, 1), (0, 2), (0, 3)]
        await cluster.until(lambda: not cluster.replica(2, T0).waiters)
        assert departing(cluster, 2).held_bytes == 0


async def test_what_waits_takes_a_limited_amount_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_produce, "LONGEST_SECONDS", 600.0)
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, [1, 2, 3])
        await departing(cluster, 1).announce()
        first = await cluster.client(2)
        first.send(request(-1), WITH_HINTS)
        await cluster.until(lambda: departing(cluster, 2).held_bytes > 0)
        held = departing(cluster, 2).held_bytes
        monkeypatch.setattr(early_produce, "MAX_HELD_BYTES", 2 * held - 1)
        assert error(await produce(await cluster.client(2))) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        monkeypatch.setattr(early_produce, "MAX_HELD_BYTES", 2 * held)
        second = await cluster.client(2)
        second.send(request(-1), WITH_HINTS)
        await cluster.until(lambda: departing(cluster, 2).held_bytes == 2 * held)
        first._writer.close()
        await cluster.until(lambda: departing(cluster, 2).held_bytes == held)


async def test_it_is_appended_once_however_often_it_is_woken(tmp_path: Path) -> None:
    """The append of one of them may wake another one a second time while that waits for replicas."""
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, [1, 2, 3])
        await departing(cluster, 1).announce()
        client = await cluster.client(2)
        client.send(request(-1), WITH_HINTS)
        await cluster.until(lambda: bool(cluster.replica(2, T0).waiters))
        (early,) = cluster.replica(2, T0).waiters
        follower = cluster.nodes[3].replicas
        assert follower._fetchers is not None
        follower._fetchers.follow = lambda partition: None  # type: ignore[method-assign]
        handover = cluster.nodes[1]._handover
        assert handover is not None
        await handover._until_others_lead()
        await cluster.until(lambda: cluster.replica(2, T0).end_offset == 1)
        assert isinstance(early, EarlyProduce)
        assert not early.done, "it waits for broker 3 now"
        early.wake()
        early.wake()
        assert cluster.replica(2, T0).end_offset == 1


async def test_where_another_leads_after_all_it_is_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, [1, 3, 2])
        await departing(cluster, 1).announce()
        early = asyncio.ensure_future(produce(await cluster.client(2)))
        await cluster.until(lambda: bool(cluster.replica(2, T0).waiters))
        handover = cluster.nodes[1]._handover
        assert handover is not None
        await handover._until_others_lead()
        assert (error(await early), named(await early)) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            [port(cluster, 3)],
        )


async def test_it_is_refused_when_no_election_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_produce, "LONGEST_SECONDS", 0.05)
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, [1, 2, 3])
        await departing(cluster, 1).announce()
        answer = await produce(await cluster.client(2))
        assert (error(answer), named(answer)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [port(cluster, 1)])
        assert not cluster.replica(2, T0).waiters


async def test_a_client_that_goes_leaves_nothing_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_produce, "LONGEST_SECONDS", 600.0)
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, [1, 2, 3])
        await departing(cluster, 1).announce()
        client = await cluster.client(2)
        early = asyncio.ensure_future(produce(client))
        await cluster.until(lambda: bool(cluster.replica(2, T0).waiters))
        client._writer.close()
        await cluster.until(lambda: not cluster.replica(2, T0).waiters)
        early.cancel()
        assert cluster.replica(2, T0).end_offset == 0


async def test_it_is_forgotten_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.services.departing.EXPECTED_SECONDS", 0.05)
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, [1, 2, 3])
        await departing(cluster, 1).announce()
        await cluster.until(lambda: not departing(cluster, 2).expects_any)
        assert error(await produce(await cluster.client(2))) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_of_many_partitions_those_are_named_that_move_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise producers of the last ones would wait for their election until they are refused."""
    for module in ("services.departing", "metadata.controller"):
        monkeypatch.setattr(f"headrace.{module}.VACATED_AT_ONCE", 1)
    async with running_cluster(tmp_path) as cluster:
        placed = [CreatableReplicaAssignment(partition_index=n, broker_ids=[1, 2, 3]) for n in range(4)]
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=placed)
        client = await cluster.client(1)
        await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
        await cluster.until(lambda: all(leads(cluster, 1, index) for index in range(4)))
        leaving = departing(cluster, 1)
        named: list[int] = []
        tell = leaving._tell

        async def noted(broker: int) -> bool:
            ((_, index),) = leaving._leaving
            assert leads(cluster, 1, index)
            named.append(index)
            return await tell(broker)

        monkeypatch.setattr(leaving, "_tell", noted)
        handover = cluster.nodes[1]._handover
        assert handover is not None
        await handover._until_others_lead()
        assert named == [0, 0, 1, 1, 2, 2, 3, 3], "both other brokers are told each time"
        assert not any(leads(cluster, 1, index) for index in range(4))


def leads(cluster: InProcessCluster, broker_id: int, index: int) -> bool:
    held = cluster.nodes[broker_id].replicas.by_name.get(b"t", {}).get(index)
    return held is not None and held.is_leader

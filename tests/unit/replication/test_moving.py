"""Brokers in one process: partitions move to others while they are written, and what moved away is set aside."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from headrace.coordination.contract import Unknown
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.services import handover
from headrace.services.handover import STORE_ATTEMPTS
from headrace.testing.in_process_cluster import InProcessCluster, running_cluster
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.unit.replication import test_three_brokers
from tests.unit.replication.test_three_brokers import contents, produce

T0 = TopicPartition("t", 0)


async def create(cluster: InProcessCluster, replicas: list[int], **configs: str) -> None:
    """And until every broker knows of it, and its leader leads."""
    await test_three_brokers.create(cluster, 1, replicas, **configs)
    await cluster.until(lambda: all(cluster.image(n).partition(T0) is not None for n in cluster.nodes))
    await cluster.until(lambda: cluster.nodes[replicas[0]].replicas.image.partition(T0) is not None)


def set_aside(directory: Path) -> int:
    return len(list(directory.glob("t-0.*-moved")))


async def move(cluster: InProcessCluster, through: int, replicas: list[int] | None) -> int:
    wanted = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=20_000, topics=[ReassignableTopic(name="t", partitions=[wanted])]
    )
    client = await cluster.client(through)
    answer = await client.ask(request, AlterPartitionReassignmentsResponse, 1)
    assert answer.error_code == 0, answer
    return answer.responses[0].partitions[0].error_code


async def moving(cluster: InProcessCluster, through: int) -> list[tuple[list[int], list[int], list[int]]]:
    client = await cluster.client(through)
    answer = await client.ask(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, 0)
    return [
        (part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in answer.topics
        for part in topic.partitions
    ]


async def keep_producing(cluster: InProcessCluster, until: asyncio.Event) -> int:
    """How many were acknowledged; who is told to try again does."""
    acknowledged = 0
    while not until.is_set():
        answer = await produce(cluster)
        if answer.error_code == 0:
            acknowledged += 1
        else:
            assert answer.error_code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            )
            await asyncio.sleep(0.01)
    return acknowledged


async def test_a_partition_moves_to_other_brokers_while_it_is_written(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 4) as cluster:
        await create(cluster, replicas=[1, 2])
        for _ in range(5):
            assert (await produce(cluster)).error_code == 0
        done = asyncio.Event()
        producing = asyncio.ensure_future(keep_producing(cluster, done))
        assert await move(cluster, 4, [3, 4]) == 0
        await cluster.until(lambda: cluster.state(T0).replicas == (3, 4))
        done.set()
        acknowledged = await producing
        state = cluster.state(T0)
        assert (state.leader, state.isr, state.target) == (3, (3, 4), ())
        await cluster.until(lambda: cluster.replica(3, T0).is_leader)
        assert cluster.replica(3, T0).end_offset >= 5 + acknowledged
        assert (await produce(cluster)).error_code == 0
        await cluster.until(lambda: contents(cluster, 3) == contents(cluster, 4) != b"")
        for broker_id in (1, 2):
            directory = tmp_path / f"broker-{broker_id}"
            await cluster.until(partial(lambda path: set_aside(path) == 1, directory))
            assert not (directory / "t-0").exists()
        assert await moving(cluster, 2) == []


async def test_more_replicas_and_fewer_on_a_live_topic(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 3) as cluster:
        await create(cluster, replicas=[1], min_insync_replicas="2")
        assert (await produce(cluster)).error_code == 0
        assert await move(cluster, 2, [1, 2, 3]) == 0
        await cluster.until(lambda: cluster.state(T0).isr == (1, 2, 3) and not cluster.state(T0).target)
        await cluster.until(lambda: cluster.replica(3, T0).end_offset == 1)
        assert await move(cluster, 3, [2]) == 0
        await cluster.until(lambda: cluster.replica(2, T0).is_leader and cluster.state(T0).leader == 2)
        answer = await produce(cluster)
        assert (answer.error_code, answer.base_offset) == (0, 1)
        assert cluster.state(T0).replicas == (2,)


async def test_a_replica_that_left_and_returns_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    """Its log was set aside: the leader must not count what it confirmed before."""
    async with running_cluster(tmp_path, 3) as cluster:
        await create(cluster, replicas=[1, 2])
        for _ in range(3):
            assert (await produce(cluster)).error_code == 0
        for replicas in ([1], [1, 2], [1], [1, 2, 3]):
            assert await move(cluster, 3, replicas) == 0
        await cluster.until(lambda: cluster.state(T0).isr == (1, 2, 3))
        assert all(cluster.replica(n, T0).end_offset == 3 for n in (1, 2, 3))
        assert contents(cluster, 1) == contents(cluster, 2) == contents(cluster, 3)


async def test_a_move_survives_the_controller_and_can_be_cancelled(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 4) as cluster:
        await create(cluster, replicas=[2, 3])
        assert (await produce(cluster)).error_code == 0
        assert cluster.image(1).controller_id == 1
        # The new replica copies nothing, so that the move goes on for ever.
        fetchers = cluster.nodes[4].replicas._fetchers
        assert fetchers is not None
        fetchers.follow = lambda partition: None  # type: ignore[method-assign]
        assert await move(cluster, 3, [4, 3]) == 0
        assert await moving(cluster, 4) == [([4, 3, 2], [4], [2])]
        await cluster.stop(1)
        await cluster.until(lambda: cluster.image(2).controller_id > 1)
        assert await moving(cluster, 4) == [([4, 3, 2], [4], [2])]
        assert await move(cluster, 4, None) == 0
        await cluster.until(lambda: cluster.state(T0).replicas == (2, 3))
        assert (cluster.state(T0).leader, cluster.state(T0).target) == (2, ())
        assert await move(cluster, 4, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        await cluster.until(lambda: set_aside(tmp_path / "broker-4") == 1)


async def test_a_move_goes_on_when_its_broker_died_and_returns(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 3) as cluster:
        await create(cluster, replicas=[1, 2])
        assert (await produce(cluster)).error_code == 0
        await cluster.stop(3)
        await cluster.until(lambda: 3 not in cluster.image(1).brokers)
        assert await move(cluster, 1, [3, 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await cluster.start(3)
        await cluster.until(lambda: 3 in cluster.image(1).brokers)
        assert await move(cluster, 1, [3, 1]) == 0
        await cluster.stop(3)
        assert (await produce(cluster)).error_code == 0
        await cluster.start(3)
        await cluster.until(lambda: cluster.state(T0).replicas == (3, 1))
        await cluster.until(lambda: contents(cluster, 3) == contents(cluster, 1) != b"")


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_preferred_leaders_are_elected_through_any_broker(tmp_path: Path, version: int) -> None:
    async with running_cluster(tmp_path, 3) as cluster:
        await create(cluster, replicas=[1, 2, 3])
        await cluster.stop(1)
        await cluster.until(lambda: cluster.state(T0).leader == 2)
        await cluster.start(1)
        await cluster.until(lambda: sorted(cluster.state(T0).isr) == [1, 2, 3])
        assert cluster.state(T0).leader == 2
        client = await cluster.client(3)
        asked = [TopicPartitions(topic="t", partitions=[0])]
        for expected in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
            answer = await client.ask(ElectLeadersRequest(topic_partitions=asked), ElectLeadersResponse, version)
            assert answer.replica_election_results[0].partition_result[0].error_code == expected
        await cluster.until(lambda: cluster.replica(1, T0).is_leader and cluster.state(T0).leader == 1)
        assert (await produce(cluster)).error_code == 0


async def test_a_broker_that_stops_hands_over_first(tmp_path: Path) -> None:
    """Nobody has to notice that it is gone: others lead and nobody waits for it while it still serves."""
    async with running_cluster(tmp_path, 3) as cluster:
        await create(cluster, [1, 2, 3], min_insync_replicas="2")
        assert (await produce(cluster)).error_code == 0
        await cluster.until(lambda: len(cluster.state(T0).isr) == 3)
        node = cluster.nodes[1]
        assert node._handover is not None
        await node._handover.run()
        state = cluster.image(1).partition(T0)
        assert state is not None
        assert (state.leader, state.isr) == (2, (2, 3))
        assert 1 in cluster.image(1).brokers
        assert not cluster.replica(1, T0).is_leader
        await cluster.until(lambda: cluster.replica(2, T0).is_leader and cluster.state(T0).leader == 2)
        answer = await produce(cluster)
        assert (answer.error_code, answer.base_offset) == (0, 1)
        await cluster.until(lambda: cluster.replica(1, T0).end_offset == 2)
        assert cluster.state(T0).isr == (2, 3), "who is about to stop does not join again"


async def test_a_broker_that_handed_over_stays_to_send_its_clients_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka starts over if the only broker it is connected to goes, and may hang in a commit."""
    async with running_cluster(tmp_path, 3) as cluster:
        await create(cluster, [1, 2, 3])
        client = await cluster.client(1)
        await cluster.until(lambda: len(cluster.state(T0).isr) == 3)
        node = cluster.nodes[1]
        assert node._handover is not None
        monkeypatch.setattr(handover, "FAREWELL_SECONDS", 600.0)
        leaving = asyncio.create_task(node._handover.run())
        await cluster.until(lambda: cluster.state(T0).leader == 2 and not cluster.replica(1, T0).is_leader)
        topics = [MetadataRequestTopic(name="t")]
        answer = await client.ask(MetadataRequest(topics=topics), MetadataResponse, 9)
        assert answer.topics[0].partitions[0].leader_id == 2
        assert not (await asyncio.wait({leaving}, timeout=0.2))[0], "it has gone"
        leaving.cancel()
        monkeypatch.undo()


async def test_who_cannot_read_the_store_does_not_wait_for_others_to_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_cluster(tmp_path, 2) as cluster:
        await create(cluster, [1, 2])
        node = cluster.nodes[1]
        assert node._handover is not None
        asked = 0

        async def is_down(*paths: str) -> None:
            nonlocal asked
            asked += 1
            raise Unknown("/", "no server can be reached")

        with monkeypatch.context() as patch:
            patch.setattr(node._metadata, "catch_up", is_down)
            patch.setattr(node._handover, "_may_stop", lambda: pytest.fail("the controller was asked in vain"))
            await node._handover.run()
        assert asked == STORE_ATTEMPTS
        assert "without handing over partitions: /: no server can be reached" in caplog.text
        assert cluster.replica(1, T0).is_leader


async def test_the_last_in_sync_replica_stops_all_the_same(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 2) as cluster:
        await create(cluster, [1, 2])
        assert (await produce(cluster)).error_code == 0
        await asyncio.gather(cluster.stop(1), cluster.stop(2))
        await asyncio.gather(cluster.start(1), cluster.start(2))
        await cluster.until(lambda: sorted(cluster.state(T0).isr) == [1, 2])
        assert (await produce(cluster)).base_offset == 1


async def test_a_broker_that_returned_leads_again_by_itself(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 3, leader_imbalance_check_interval_seconds="1") as cluster:
        await create(cluster, [1, 2, 3])
        await cluster.stop(1)
        await cluster.until(lambda: cluster.state(T0).leader == 2)
        await cluster.start(1)
        await cluster.until(lambda: cluster.state(T0).leader == 1)
        await cluster.until(lambda: cluster.replica(1, T0).is_leader)


async def test_nobody_leads_again_by_itself_if_that_is_off(tmp_path: Path) -> None:
    off = {"leader_imbalance_check_interval_seconds": "1", "auto_leader_rebalance_enable": "false"}
    async with running_cluster(tmp_path, 2, **off) as cluster:
        await create(cluster, [1, 2])
        await cluster.stop(1)
        await cluster.start(1)
        await cluster.until(lambda: sorted(cluster.state(T0).isr) == [1, 2])
        await asyncio.sleep(1.5)
        assert cluster.state(T0).leader == 2

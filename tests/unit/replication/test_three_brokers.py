"""Three brokers in one process: partitions are copied, led by others when a broker goes, and made whole again."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest

from headrace.metadata import change_writer
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.storage.segment_list import SegmentList
from headrace.testing.faulty_disk import FaultyDisk
from headrace.testing.in_process import Client
from headrace.testing.in_process_cluster import InProcessCluster, running_cluster
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from headrace.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

T0 = TopicPartition("t", 0)


async def create(cluster: InProcessCluster, through: int, replicas: list[int], **configs: str) -> None:
    pairs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
        configs=pairs,
    )
    client = await cluster.client(through)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == 0, answer


async def produce(
    cluster: InProcessCluster, acks: int = -1, timeout_ms: int = 20_000, key: bytes | None = None
) -> PartitionProduceResponse:
    await cluster.until(lambda: cluster.replica(cluster.state(T0).leader, T0).is_leader)
    client = await cluster.client(cluster.state(T0).leader)
    data = [PartitionProduceData(index=0, records=bytes(build_batch([NewRecord(b"v", key)])))]
    request = ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    answer = await client.ask(request, ProduceResponse, 9)
    return answer.responses[0].partition_responses[0]


def contents(cluster: InProcessCluster, broker_id: int) -> bytes:
    """Every byte of the replica's log."""
    directory = Path(cluster.replica(broker_id, T0).log.directory)
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


async def test_records_are_copied_and_survive_their_leader(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, through=2, replicas=[1, 2, 3], min_insync_replicas="2")
        for acks in (-1, 1, 2, 3):
            assert (await produce(cluster, acks)).error_code == 0
        await cluster.until(lambda: all(cluster.replica(n, T0).end_offset == 4 for n in (1, 2, 3)))
        assert contents(cluster, 1) == contents(cluster, 2) == contents(cluster, 3) != b""
        await cluster.until(lambda: all(cluster.replica(n, T0).high_watermark == 4 for n in (1, 2, 3)))
        await cluster.stop(1)
        await cluster.until(lambda: all(cluster.state(T0).leader == n for n in (2,)))
        await cluster.until(lambda: cluster.replica(2, T0).is_leader)
        answer = await produce(cluster)
        assert (answer.error_code, answer.base_offset) == (0, 4)
        await cluster.start(1)
        await cluster.until(lambda: sorted(cluster.state(T0).isr) == [1, 2, 3])
        await cluster.until(lambda: contents(cluster, 1) == contents(cluster, 2) == contents(cluster, 3))


async def test_too_few_replicas_refuse_and_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_cluster(tmp_path, 2, replica_lag_time_max_ms="2000") as cluster:
        await create(cluster, through=1, replicas=[1, 2], min_insync_replicas="2")
        assert (await produce(cluster)).error_code == 0
        fetchers, follower = cluster.nodes[2].replicas._fetchers, cluster.replica(2, T0)
        assert fetchers is not None
        with monkeypatch.context() as patched:
            patched.setattr(fetchers, "follow", lambda partition: None)  # each new image makes it follow
            fetchers.leave(follower)
            late = await produce(cluster, -1, timeout_ms=100)
            assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
            waiting = asyncio.ensure_future(produce(cluster))
            await cluster.until(lambda: cluster.state(T0).isr == (1,))
            assert (await waiting).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            await asyncio.sleep(0.3)
            assert cluster.state(T0).isr == (1,), "it joins again once it fetches, not by what it fetched before"
            assert (await produce(cluster)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        fetchers.follow(follower)
        await cluster.until(lambda: cluster.state(T0).isr == (1, 2))
        assert (await produce(cluster)).error_code == 0


async def test_records_are_deleted_when_every_in_sync_replica_has_let_go_of_them(tmp_path: Path) -> None:
    """Else the next leader would bring them back."""

    async def delete(offset: int, timeout_ms: int) -> tuple[int, int]:
        client = await cluster.client(1)
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)
        row = (await client.ask(request, DeleteRecordsResponse, 2)).topics[0].partitions[0]
        return row.error_code, row.low_watermark

    async with running_cluster(tmp_path, 2) as cluster:
        await create(cluster, through=1, replicas=[1, 2])
        for _ in range(4):
            assert (await produce(cluster)).error_code == 0
        assert await delete(2, 20_000) == (0, 2)
        assert cluster.replica(2, T0).log.start_offset == 2, "it has heard of it before the answer"
        fetchers, follower = cluster.nodes[2].replicas._fetchers, cluster.replica(2, T0)
        assert fetchers is not None
        fetchers.leave(follower)
        assert await delete(3, 100) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        waiting = asyncio.ensure_future(delete(3, 20_000))
        fetchers.follow(follower)
        assert await waiting == (0, 3)
        assert follower.log.start_offset == 3


async def test_who_left_too_small_an_in_sync_set_leads_before_its_last_member_is_back(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, through=3, replicas=[1, 2, 3], min_insync_replicas="2")
        assert (await produce(cluster)).error_code == 0
        await cluster.stop(2)
        await cluster.until(lambda: cluster.state(T0).isr == (1, 3))
        await cluster.stop(1)
        await cluster.until(lambda: cluster.state(T0).isr == (3,))
        assert cluster.state(T0).elr == (1,), "broker 2 left while two were in sync"
        client = await cluster.client(3)
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], response_partition_limit=9)
        answer = await client.ask(request, DescribeTopicPartitionsResponse, 0)
        partition = answer.topics[0].partitions[0]
        assert (partition.isr_nodes, partition.eligible_leader_replicas) == ([3], [1])
        assert (await produce(cluster, acks=1)).error_code == 0
        assert cluster.replica(3, T0).high_watermark <= 1, "nothing is committed meanwhile"
        await cluster.stop(3)
        await cluster.start(1)
        await cluster.until(lambda: cluster.state(T0).leader == 1)
        assert (cluster.state(T0).isr, cluster.state(T0).elr) == ((1,), (3,))
        await cluster.start(2)
        await cluster.until(lambda: cluster.state(T0).isr == (1, 2) and not cluster.state(T0).elr)
        assert (await produce(cluster)).base_offset == 1


async def test_a_follower_joins_only_when_its_records_are_on_its_device(tmp_path: Path) -> None:
    """flush.messages=1: what a follower says it has is synced (R-LOG-6)."""
    async with running_cluster(tmp_path, 2) as cluster:
        await create(cluster, through=1, replicas=[1, 2], flush_messages="1")
        for _ in range(3):
            assert (await produce(cluster)).error_code == 0
        assert all(cluster.replica(n, T0).log.recovery_point == 3 for n in (1, 2))


async def test_a_replica_without_its_log_leaves_the_in_sync_set_and_copies_it(tmp_path: Path) -> None:
    """A wiped disk is not a clean one: the leader that lost its log must not lead with nothing."""
    async with running_cluster(tmp_path, 2) as cluster:
        await create(cluster, through=1, replicas=[1, 2])
        for _ in range(5):
            assert (await produce(cluster)).error_code == 0
        await cluster.stop(2)
        await cluster.until(lambda: cluster.state(T0).isr == (1,))
        await cluster.start(2)
        await cluster.until(lambda: cluster.state(T0).isr == (1, 2))
        await cluster.stop(1)
        await cluster.stop(2)
        shutil.rmtree(tmp_path / "broker-1" / "t-0")
        await cluster.start(1)
        assert cluster.state(T0).leader != 1 or not cluster.replica(1, T0).is_leader
        await cluster.start(2)
        await cluster.until(lambda: cluster.state(T0).leader == 2)
        await cluster.until(lambda: sorted(cluster.state(T0).isr) == [1, 2])
        assert cluster.replica(1, T0).end_offset == cluster.replica(2, T0).end_offset == 5
        assert contents(cluster, 1) == contents(cluster, 2) != b""


@pytest.mark.parametrize(("days", "anew"), [(2, True), (0, False)])
async def test_a_compacted_replica_that_was_away_for_long_is_copied_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: int, anew: bool
) -> None:
    """It may hold a value whose tombstone its leader has removed since."""
    async with running_cluster(tmp_path, 2) as cluster:
        await create(cluster, through=1, replicas=[1, 2], cleanup_policy="compact")
        for key in (b"a", b"b"):
            assert (await produce(cluster, key=key)).error_code == 0
        await cluster.stop(2)
        await cluster.until(lambda: cluster.state(T0).isr == (1,))
        assert (await produce(cluster, key=b"c")).error_code == 0
        checkpoint = tmp_path / "broker-2" / "replication-offset-checkpoint"
        then = checkpoint.stat().st_mtime - days * 86_400 - 1
        os.utime(checkpoint, (then, then))
        await cluster.start(2)
        await cluster.until(lambda: cluster.state(T0).isr == (1, 2))
        assert contents(cluster, 1) == contents(cluster, 2) != b""
        assert ("is being copied again from its leader" in caplog.text) is anew


async def test_a_stale_replica_without_room_to_be_copied_waits_and_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path, 2) as cluster:
        await create(cluster, through=1, replicas=[1, 2], cleanup_policy="compact")
        assert (await produce(cluster, key=b"a")).error_code == 0
        await cluster.stop(2)
        await cluster.until(lambda: cluster.state(T0).isr == (1,) and not cluster.state(T0).elr)
        checkpoint = tmp_path / "broker-2" / "replication-offset-checkpoint"
        then = checkpoint.stat().st_mtime - 2 * 86_400
        os.utime(checkpoint, (then, then))

        def no_room(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(SegmentList, "create_beside", no_room)
            await cluster.start(2)
            replica = cluster.replica(2, T0)
            assert not replica.follows
            assert replica.end_offset == 1
            cluster.nodes[2].replicas.retry_offline()
            assert not replica.follows
        cluster.nodes[2].replicas.retry_offline()
        assert replica.follows
        await cluster.until(lambda: cluster.state(T0).isr == (1, 2))
        assert contents(cluster, 1) == contents(cluster, 2) != b""


async def test_a_broker_with_a_full_disk_leaves_its_partitions_to_others(tmp_path: Path) -> None:
    """Else what it leads takes no records until there is space, and the others wait for it for half a minute."""
    disk = FaultyDisk()
    async with running_cluster(tmp_path, 1) as cluster:
        await cluster.start(2, disk)
        await cluster.start(3)
        await create(cluster, through=1, replicas=[2, 1, 3], min_insync_replicas="2")
        assert (await produce(cluster)).error_code == 0
        assert cluster.state(T0).leader == 2
        disk.fail(str(tmp_path / "broker-2" / "t-0"), errno.ENOSPC, "pwrite")
        disk.fail(str(tmp_path / "broker-2"), errno.EIO, "total_bytes")  # how much is free is not known either
        assert (await produce(cluster)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await cluster.until(lambda: (cluster.state(T0).leader, cluster.state(T0).isr) == (1, (1, 3)))
        assert (await produce(cluster)).error_code == 0
        disk.heal()
        await cluster.until(lambda: sorted(cluster.state(T0).isr) == [1, 2, 3])
        assert contents(cluster, 1) == contents(cluster, 2) == contents(cluster, 3)


async def test_a_topic_that_is_deleted_bit_by_bit_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log whose partition has only moved away is kept for some time; these are deleted."""
    monkeypatch.setattr(change_writer, "MAX_PARTITIONS_PER_WRITE", 1)
    async with running_cluster(tmp_path, 1) as cluster:
        client = await cluster.client(1)
        topic = CreatableTopic(name="wide", num_partitions=3, replication_factor=1)
        await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
        await cluster.until(lambda: len(list((tmp_path / "broker-1").glob("wide-*"))) == 3)
        request = DeleteTopicsRequest(topic_names=["wide"], timeout_ms=10_000)
        await client.ask(request, DeleteTopicsResponse, 5)
        await cluster.until(lambda: not cluster.nodes[1].replicas.by_name.get(b"wide"))
        left = [path.name for path in (tmp_path / "broker-1").glob("wide-*")]
        assert not [name for name in left if not name.endswith("-delete")]


def fetch(offset: int, rack: str = "") -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=[part])],
        session_epoch=-1,
        rack_id=rack,
    )


async def test_consumers_read_from_the_replica_in_their_rack(tmp_path: Path) -> None:
    """KIP-392: the leader names it, and it serves what it knows to be committed."""
    async with running_cluster(tmp_path, 0) as cluster:
        await cluster.start(1, broker_rack="a")
        await cluster.start(2, broker_rack="b")
        await create(cluster, through=1, replicas=[1, 2])
        assert (await produce(cluster)).error_code == 0
        leader, follower = await cluster.client(1), await cluster.client(2)

        async def ask(client: Client, rack: str, offset: int = 0) -> PartitionData:
            return (await client.ask(fetch(offset, rack), FetchResponse, 12)).responses[0].partitions[0]

        told = await ask(leader, "b")
        assert (told.preferred_read_replica, told.records) == (2, b"")
        for rack in ("a", "elsewhere", ""):
            told = await ask(leader, rack)
            assert told.preferred_read_replica == -1
            assert told.records
        await cluster.until(lambda: cluster.replica(2, T0).high_watermark == 1)
        served = await ask(follower, "b")
        assert (served.error_code, served.high_watermark) == (0, 1)
        assert served.records == told.records
        cluster.replica(2, T0).high_watermark = 0
        hidden = await ask(follower, "b")
        assert (hidden.error_code, hidden.records) == (0, b""), "never at or above the high watermark it knows"
        old_client = await follower.ask(fetch(0), FetchResponse, 10)
        assert old_client.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("through", [1, 2])
async def test_any_broker_takes_what_only_the_controller_can_do(tmp_path: Path, through: int) -> None:
    async with running_cluster(tmp_path, 2) as cluster:
        await create(cluster, through, [2, 1])
        assert "t" in cluster.image(through).topics
        assert cluster.replica(through, T0) is not None

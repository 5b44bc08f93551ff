"""ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers and DescribeLogDirs on a real log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.model.errors import ErrorCode
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from headrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
NOT_FOUND = (0, -1, -1, -1)


@pytest.fixture
async def filled(bench: Any) -> Any:
    """Topic `a`: offsets 0-2 at time 1000, 3-5 at 3000, 6-8 at 2000; its partition 1 is empty."""
    await bench.create_topic("a", 2)
    for timestamp in (1000, 3000, 2000):
        bench.append("a", timestamp, count=3)
    return bench


def asking(timestamp: int, index: int = 0, topic: str = "a", epoch: int = -1, **more: Any) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])], **more)


async def answer(bench: Any, request: ListOffsetsRequest, version: int = 9) -> tuple[int, int, int, int]:
    row = (await bench.call(request, version)).topics[0].partitions[0]
    return row.error_code, row.timestamp, row.offset, row.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (LATEST, (0, -1, 9, 0)),
        (EARLIEST, (0, -1, 0, 0)),
        (EARLIEST_LOCAL, (0, -1, 0, 0)),
        (MAX_TIMESTAMP, (0, 3000, 3, 0)),
        (LATEST_TIERED, NOT_FOUND),
        (0, (0, 1000, 0, 0)),
        (1000, (0, 1000, 0, 0)),
        (1001, (0, 3000, 3, 0)),
        (3000, (0, 3000, 3, 0)),
        (3001, NOT_FOUND),
        (-6, (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)),
    ],
)
async def test_offsets_by_time_and_landmark(filled: Any, timestamp: int, expected: tuple[int, ...]) -> None:
    assert await answer(filled, asking(timestamp)) == expected


async def test_offsets_of_an_empty_partition(filled: Any) -> None:
    for timestamp, expected in (
        (LATEST, (0, -1, 0, 0)),
        (EARLIEST, (0, -1, 0, 0)),
        (MAX_TIMESTAMP, NOT_FOUND),
        (5, NOT_FOUND),
    ):
        assert await answer(filled, asking(timestamp, index=1)) == expected


async def test_a_leader_that_does_not_know_the_end_yet(filled: Any) -> None:
    """After an election, until the in-sync set has confirmed where the epoch begins (KIP-207)."""
    partition = filled.partition("a")
    partition.leadership = SimpleNamespace(epoch_start=9)
    partition.high_watermark = 3
    for version, error in (
        (1, ErrorCode.LEADER_NOT_AVAILABLE),
        (4, ErrorCode.LEADER_NOT_AVAILABLE),
        (5, ErrorCode.OFFSET_NOT_AVAILABLE),
        (9, ErrorCode.OFFSET_NOT_AVAILABLE),
    ):
        for timestamp in (LATEST, 3000, 3001):
            assert (await answer(filled, asking(timestamp), version))[0] == error
        for timestamp, offset in ((EARLIEST, 0), (1000, 0)):
            assert (await answer(filled, asking(timestamp), version))[::2] == (0, offset)
    partition.high_watermark = 9
    assert await answer(filled, asking(LATEST)) == (0, -1, 9, 0)


async def test_landmarks_need_their_versions(filled: Any) -> None:
    for timestamp, first in ((MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9)):
        assert (await answer(filled, asking(timestamp), first - 1))[0] == ErrorCode.UNSUPPORTED_VERSION
        assert (await answer(filled, asking(timestamp), first))[0] == ErrorCode.NONE
    assert await answer(filled, asking(1500), 1) == (0, 3000, 3, -1), "no epoch before v4"


async def test_offsets_that_cannot_be_told(filled: Any) -> None:
    for request, code in (
        (asking(LATEST, index=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (asking(LATEST, index=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (asking(LATEST, topic="nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (asking(LATEST, epoch=5), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (asking(LATEST, epoch=-2), ErrorCode.FENCED_LEADER_EPOCH),
        (asking(LATEST, isolation_level=7), ErrorCode.INVALID_REQUEST),
    ):
        assert await answer(filled, request) == (code, -1, -1, -1)
    twice = asking(LATEST)
    twice.topics[0].partitions *= 2
    assert (await answer(filled, twice))[0] == ErrorCode.INVALID_REQUEST


async def test_a_consumer_sees_only_what_is_committed(filled: Any) -> None:
    """R-CON-1: nothing at or above the high watermark; a replica sees the end of the log."""
    filled.partition("a").high_watermark = 3
    assert (await answer(filled, asking(LATEST)))[2] == 3
    assert (await answer(filled, asking(LATEST, isolation_level=1)))[2] == 3
    assert await answer(filled, asking(3000)) == NOT_FOUND
    assert await answer(filled, asking(MAX_TIMESTAMP)) == NOT_FOUND
    replica = asking(LATEST)
    replica.replica_id = 2
    assert (await answer(filled, replica))[2] == 9


async def test_records_are_deleted_up_to_an_offset(filled: Any) -> None:
    """R-LOG-4."""

    async def delete(offset: int, index: int = 0, topic: str = "a") -> tuple[int, int]:
        partition = DeleteRecordsPartition(partition_index=index, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])])
        row = (await filled.call(request, 2)).topics[0].partitions[0]
        return row.error_code, row.low_watermark

    await filled.create_topic("__consumer_offsets")
    assert await delete(4) == (0, 4)
    assert await delete(2) == (0, 4), "the start never goes back"
    assert await delete(10) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(0, index=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete(0, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert (await answer(filled, asking(EARLIEST)))[2] == 4
    assert await delete(-1) == (0, 9)
    log = filled.partition("a").log
    for policy, code in (({"compact"}, ErrorCode.POLICY_VIOLATION), ({"compact", "delete"}, ErrorCode.NONE)):
        log.update_config(replace(log.config, cleanup_policy=frozenset(policy)))
        assert (await delete(9))[0] == code, "as Kafka has it"


async def test_where_a_leader_epoch_ends(filled: Any) -> None:
    async def end_of(epoch: int, current: int = -1, index: int = 0, replica: int = -2) -> tuple[int, int, int]:
        partition = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
        topic = OffsetForLeaderTopic(topic="a", partitions=[partition])
        response = await filled.call(OffsetForLeaderEpochRequest(replica_id=replica, topics=[topic]), 4)
        row = response.topics[0].partitions[0]
        return row.error_code, row.leader_epoch, row.end_offset

    assert await end_of(0) == (0, 0, 9)
    assert await end_of(1) == (0, -1, -1), "an epoch we never had"
    assert await end_of(0, current=3) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert await end_of(0, current=-2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert await end_of(0, index=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    filled.partition("a").high_watermark = 3
    assert await end_of(0) == (0, 0, 9)
    assert await end_of(0, replica=-1) == (0, 0, 9), "as in Kafka"


async def test_producers_that_a_partition_remembers(filled: Any) -> None:
    filled.append("a", 5000, count=2, producer_id=77)
    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name="a", partition_indexes=[0, 1, 9]),
            TopicRequest(name="a b", partition_indexes=[0]),
        ]
    )
    known, other = (await filled.call(request, 0)).topics
    (producer,) = known.partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 0, 1)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (5000, -1)
    assert known.partitions[1].active_producers == []
    assert known.partitions[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert other.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_what_the_data_directories_hold(filled: Any, tmp_path: Path) -> None:
    (everything,) = (await filled.call(DescribeLogDirsRequest(topics=None), 4)).results
    assert everything.log_dir == str(tmp_path / "data")
    assert everything.total_bytes > everything.usable_bytes > 0
    sizes = {row.partition_index: row.partition_size for row in everything.topics[0].partitions}
    assert sizes == {0: filled.partition("a").log.size, 1: 0}
    assert sizes[0] > 0
    for asked, count in ((DescribableLogDirTopic(topic="a", partitions=[1]), 1), (None, 0)):
        topics = [asked] if asked else []
        (some,) = (await filled.call(DescribeLogDirsRequest(topics=topics), 2)).results
        assert len(some.topics) == count

"""ListOffsets (2), v1-11. The offset at a point in time, or at one of the log's landmarks.

v2 isolation level; v4 leader epochs; v5 OFFSET_NOT_AVAILABLE (KIP-207), for older clients LEADER_NOT_AVAILABLE:
aiokafka sends v3 and gives up at an error that it does not know.

Landmarks are negative times: -1 latest, -2 earliest, v7 -3 the largest timestamp (KIP-734), v8 -4 earliest on
local disk (KIP-405), v9 -5 latest in tiered storage (KIP-1005), v11 -6 earliest that waits for its upload there
(KIP-1023); there is no tiered storage, so neither is found. Consumers see up to the high watermark, or with
read_committed up to the last stable offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import IntEnum

from headrace.handlers.context import Context, topic_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.replication.partition import COMMITTED, REPLICA, UNCOMMITTED, Partition
from headrace.storage.timestamps import TimestampOffset
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


class Landmark(IntEnum):
    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


LANDMARK_SINCE = {
    Landmark.LATEST: 1,
    Landmark.EARLIEST: 1,
    Landmark.MAX_TIMESTAMP: 7,
    Landmark.EARLIEST_LOCAL: 8,
    Landmark.LATEST_TIERED: 9,
    Landmark.EARLIEST_PENDING_UPLOAD: 11,
}
assert LANDMARK_SINCE.keys() == set(Landmark)
LEADER_EPOCH_SINCE = 4
NOT_AVAILABLE_SINCE = 5
CONSUMER = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NO_TIMESTAMP = -1
NOT_FOUND = TimestampOffset(NO_TIMESTAMP, -1, -1)


@api(ListOffsetsRequest, ListOffsetsResponse, versions=range(1, 12), authorize=topic_describe)
async def list_offsets(ctx: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Returns offsets by time, and where partitions begin and end."""
    repeated = _repeated(request)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    await _answer(ctx, request, TopicPartition(topic.name, asked.partition_index), asked, repeated)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _repeated(request: ListOffsetsRequest) -> set[TopicPartition]:
    counts = Counter(
        TopicPartition(topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
    )
    return {partition for partition, count in counts.items() if count > 1}


async def _answer(
    ctx: Context,
    request: ListOffsetsRequest,
    topic_partition: TopicPartition,
    asked: ListOffsetsPartition,
    repeated: set[TopicPartition],
) -> ListOffsetsPartitionResponse:
    try:
        if topic_partition in repeated or request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if asked.timestamp < 0:
            _check_landmark(asked.timestamp, ctx.version)
        partition = ctx.broker.replicas.leader(topic_partition, asked.current_leader_epoch)
        found = await _look_up(ctx, partition, asked.timestamp, _reader(request))
    except KafkaError as error:
        code = _for_client(error.code, ctx.version)
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
    response = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, timestamp=found.timestamp, offset=found.offset
    )
    if ctx.version >= LEADER_EPOCH_SINCE:
        response.leader_epoch = found.leader_epoch
    return response


def _check_landmark(timestamp: int, version: int) -> None:
    if timestamp not in set(Landmark) or version < LANDMARK_SINCE[Landmark(timestamp)]:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _for_client(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error


def _reader(request: ListOffsetsRequest) -> int:
    if request.replica_id != CONSUMER:
        return REPLICA
    return COMMITTED if request.isolation_level == READ_COMMITTED else UNCOMMITTED


async def _search(ctx: Context, work: Callable[[], TimestampOffset | None]) -> TimestampOffset | None:
    """In a thread, since a batch is decompressed."""
    return await ctx.broker.env.run_blocking(work)


async def _look_up(ctx: Context, partition: Partition, timestamp: int, reader: int) -> TimestampOffset:
    match timestamp:
        case Landmark.LATEST:
            return TimestampOffset(NO_TIMESTAMP, partition.visible_end(reader), partition.leader_epoch)
        case Landmark.EARLIEST | Landmark.EARLIEST_LOCAL:
            return partition.start
        case Landmark.MAX_TIMESTAMP:
            found = await _search(ctx, partition.find_max_timestamp)
        case Landmark.LATEST_TIERED | Landmark.EARLIEST_PENDING_UPLOAD:
            found = None
        case _:
            found = await _search(ctx, lambda: partition.find_timestamp(timestamp))
    if found is not None and found.offset < partition.readable_end(reader):
        return found
    partition.visible_end(reader)  # "nothing there" needs a known end
    return NOT_FOUND

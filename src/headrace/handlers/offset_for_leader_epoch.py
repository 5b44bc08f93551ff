"""OffsetForLeaderEpoch (23), v2-4. Where a leader epoch ends, to find the point at which two logs part.

v2 fencing by the current epoch (KIP-320); v3 the replica's id: consumers (-1) are refused while this broker may
have been replaced. An epoch we never had is answered with -1 and -1.
"""

from __future__ import annotations

from headrace.handlers.context import Context, topic_describe
from headrace.handlers.registry import api
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.replication.partition import REPLICA, UNCOMMITTED
from headrace.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

CONSUMER = -1


@api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, versions=range(2, 5), authorize=topic_describe)
async def offset_for_leader_epoch(
    ctx: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Returns where a leader epoch ends in a partition's log."""
    is_consumer = request.replica_id == CONSUMER
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(ctx, topic.topic, asked, is_consumer) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(ctx: Context, topic: str, asked: OffsetForLeaderPartition, is_consumer: bool) -> EpochEndOffset:
    try:
        partition = ctx.broker.replicas.leader(TopicPartition(topic, asked.partition), asked.current_leader_epoch)
        epoch, end_offset = partition.epoch_end(asked.leader_epoch, UNCOMMITTED if is_consumer else REPLICA)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)

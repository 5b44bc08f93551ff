"""DeleteRecords (21), v0-2. Moves the start of partitions forward; what lies before is gone (KIP-107).

Offset -1 means the high watermark. Internal topics are refused: their records are the cluster's memory. Answered
once every in-sync replica has let go of the records, or with REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from headrace.handlers.context import Context, topic_delete
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import INTERNAL_TOPICS, TopicPartition
from headrace.replication.partition import Partition
from headrace.services.trimming import trimmed
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1


@api(DeleteRecordsRequest, DeleteRecordsResponse, versions=range(3), authorize=topic_delete)
async def delete_records(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Deletes the records of partitions up to an offset."""
    deadline = ctx.broker.env.clock.monotonic() + max(request.timeout_ms, 0) / 1000
    begun = [
        (topic.name, [(asked.partition_index, _begin(ctx, topic.name, asked)) for asked in topic.partitions])
        for topic in request.topics
    ]
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name, partitions=[await _finish(ctx, index, trim, deadline) for index, trim in trims]
            )
            for name, trims in begun
        ]
    )


_Begun = tuple[Partition, int] | KafkaError
"""The partition and where it starts now, for the others to follow."""


def _begin(ctx: Context, topic: str, asked: DeleteRecordsPartition) -> _Begun:
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = ctx.broker.replicas.leader(TopicPartition(topic, asked.partition_index))
        return partition, partition.delete_records(asked.offset)
    except KafkaError as error:
        return error


async def _finish(ctx: Context, index: int, begun: _Begun, deadline: float) -> DeleteRecordsPartitionResult:
    try:
        if isinstance(begun, KafkaError):
            raise begun
        low_watermark = await trimmed(ctx.broker.env, *begun, deadline)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)

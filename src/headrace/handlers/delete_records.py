"""DeleteRecords (21), v0-2. Moves the start of partitions forward; what lies before is gone (KIP-107).

Offset -1 means the high watermark. Internal topics are refused: their records are the cluster's memory.
"""

from __future__ import annotations

from headrace.handlers.context import Context, topic_delete
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import INTERNAL_TOPICS, TopicPartition
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
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete(ctx, topic.name, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(ctx: Context, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = ctx.broker.replicas.leader(TopicPartition(topic, asked.partition_index))
        low_watermark = partition.delete_records(asked.offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=low_watermark)

"""DescribeProducers (61), v0. The producers that a partition's leader remembers (KIP-664)."""

from __future__ import annotations

from headrace.handlers.context import Context, topic_read
from headrace.handlers.registry import api
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition, check_topic_name
from headrace.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@api(DescribeProducersRequest, DescribeProducersResponse, versions=range(1), authorize=topic_read)
async def describe_producers(ctx: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Returns the producers that a partition remembers."""
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name, partitions=[await _describe(ctx, name, index) async for index in ctx.each(indexes)]
            )
            for name, indexes in asked.items()
        ]
    )


async def _describe(ctx: Context, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        partition = ctx.broker.replicas.leader(TopicPartition(topic, index))
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=row.producer_id,
                producer_epoch=row.epoch,
                last_sequence=row.last_sequence,
                last_timestamp=row.last_timestamp,
                coordinator_epoch=row.coordinator_epoch,
                current_txn_start_offset=row.transaction_first_offset,
            )
            async for row in ctx.each(partition.producers())
        ],
    )

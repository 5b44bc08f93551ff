"""AlterPartitionReassignments (45), v0-1. Moves partitions to other brokers, or cancels a move (KIP-455).

v1 the replication factor may be kept fixed. A partition is done when all of its new replicas are in sync; until
then ListPartitionReassignments names it, and the old ones stay.
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.reassignments import Reassignment, ReassignmentOutcome
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@api(
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    versions=range(2),
    authorize=cluster_alter,
)
@on_controller(AlterPartitionReassignmentsResponse)
async def alter_partition_reassignments(
    ctx: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Moves partitions between brokers, or cancels a move."""
    allows = request.allow_replication_factor_change
    asked = [
        Reassignment(
            TopicPartition(topic.name, partition.partition_index),
            None if partition.replicas is None else tuple(partition.replicas),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        outcomes = await ctx.broker.controller.reassign(asked, allows)
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(
            error_code=error.code,
            error_message=error.message,
            allow_replication_factor_change=allows,
            responses=[],
        )
    results = iter([_result(one.partition, outcome) for one, outcome in zip(asked, outcomes, strict=True)])
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allows,
        error_message=None,
        responses=[
            ReassignableTopicResponse(name=topic.name, partitions=[next(results) for _ in topic.partitions])
            for topic in request.topics
        ],
    )


def _result(name: TopicPartition, outcome: ReassignmentOutcome) -> ReassignablePartitionResponse:
    if isinstance(outcome, KafkaError):
        return ReassignablePartitionResponse(
            partition_index=name.partition, error_code=outcome.code, error_message=outcome.message
        )
    return ReassignablePartitionResponse(partition_index=name.partition, error_message=None)

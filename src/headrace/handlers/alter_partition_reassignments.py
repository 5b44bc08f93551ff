"""AlterPartitionReassignments (45), v0-1. Moves partitions to other brokers, or cancels a move (KIP-455).

v1 the replication factor may be kept fixed. Replicas cannot move between brokers yet: an assignment is checked as
Kafka checks it, one that is already in force is a success, any other is refused.
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.registry import api
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode, KafkaError
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
def alter_partition_reassignments(
    ctx: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Moves partitions between brokers: not yet, and says so."""
    image = ctx.broker.metadata.image
    fixed_factor = not request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(image, TopicPartition(topic.name, asked.partition_index), asked.replicas, fixed_factor)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _result(
    image: MetadataImage, name: TopicPartition, replicas: list[int] | None, fixed_factor: bool
) -> ReassignablePartitionResponse:
    try:
        _reassign(image, name, replicas, fixed_factor)
    except KafkaError as error:
        return ReassignablePartitionResponse(
            partition_index=name.partition, error_code=error.code, error_message=error.message
        )
    return ReassignablePartitionResponse(partition_index=name.partition, error_message=None)


def _reassign(image: MetadataImage, name: TopicPartition, replicas: list[int] | None, fixed_factor: bool) -> None:
    if name.topic not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name.topic}'.")
    partition = image.partition(name)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}.")
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    _check_assignment(image, replicas)
    if fixed_factor and len(replicas) != len(partition.replicas):
        detail = f"The replication factor is {len(partition.replicas)} and may not become {len(replicas)}."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, detail)
    if tuple(replicas) != partition.replicas:
        detail = "Partitions cannot be moved between brokers yet."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)


def _check_assignment(image: MetadataImage, replicas: list[int]) -> None:
    if not replicas:
        raise _bad("A partition is assigned to no broker.")
    for broker_id in replicas:
        if broker_id not in image.brokers:
            raise _bad(f"Broker {broker_id} is in the assignment, and is not registered.")
    if len(set(replicas)) < len(replicas):
        raise _bad(f"The assignment names a broker twice: {replicas}.")


def _bad(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)

"""ElectLeaders (43), v0-2. Has partitions led by their preferred replica, or by any that lives (KIP-183, KIP-460).

v1 the kind of election: preferred or unclean. A partition that is led as asked for gets ELECTION_NOT_NEEDED. Null
asks for all partitions: those that need no election are left out then.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.image import MetadataImage
from headrace.metadata.partition_decisions import Election
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

ERROR_SINCE = 1


@api(ElectLeadersRequest, ElectLeadersResponse, versions=range(3), authorize=cluster_alter)
@on_controller(ElectLeadersResponse)
async def elect_leaders(ctx: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elects leaders of partitions."""
    image = ctx.broker.metadata.image
    names = _every_partition(image)
    if request.topic_partitions is not None:
        names = [
            TopicPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions
        ]
    try:
        if request.election_type not in set(Election):
            detail = f"There is no election of type {request.election_type}."
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
        outcomes = await ctx.broker.controller.elect_leaders(names, Election(request.election_type))
    except KafkaError as error:
        response = ElectLeadersResponse(replica_election_results=_results(names, [error for _ in names]))
        if ctx.version >= ERROR_SINCE:
            response.error_code = error.code
        return response
    return ElectLeadersResponse(
        replica_election_results=_results(names, outcomes, every=request.topic_partitions is not None)
    )


def _every_partition(image: MetadataImage) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index in range(len(topic.partitions))
    ]


def _results(
    names: list[TopicPartition], outcomes: Sequence[KafkaError | None], every: bool = True
) -> list[ReplicaElectionResult]:
    """By topic; unless `every` is wanted, partitions that need no election are left out, topics never."""
    topics: dict[str, ReplicaElectionResult] = {}
    for name, error in zip(names, outcomes, strict=True):
        topic = topics.setdefault(name.topic, ReplicaElectionResult(topic=name.topic, partition_result=[]))
        if error is None or every or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
            topic.partition_result.append(
                PartitionResult(
                    partition_id=name.partition,
                    error_code=error.code if error else ErrorCode.NONE,
                    error_message=error.message if error else None,
                )
            )
    return list(topics.values())

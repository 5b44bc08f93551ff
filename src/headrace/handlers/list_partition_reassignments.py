"""ListPartitionReassignments (46), v0. The moves of replicas that are under way (KIP-455).

Partitions that do not move, or do not exist, are left out, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.handlers.context import Context, cluster_describe
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.image import MetadataImage, PartitionImage, TopicImage
from headrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@api(
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    versions=range(1),
    authorize=cluster_describe,
)
@on_controller(ListPartitionReassignmentsResponse)
async def list_partition_reassignments(
    ctx: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Lists the moves of replicas between brokers that are under way."""
    image = ctx.broker.metadata.image
    wanted = None
    if request.topics is not None:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    topics = []
    for topic, indexes in _asked(image, wanted):
        moving = [
            _described(index, topic.partitions[index]) for index in indexes if topic.partitions[index].target
        ]
        if moving:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=moving))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _asked(
    image: MetadataImage, wanted: list[tuple[str, list[int]]] | None
) -> Iterator[tuple[TopicImage, Iterable[int]]]:
    if wanted is None:
        for topic in image.topics.values():
            yield topic, range(len(topic.partitions))
        return
    for name, indexes in wanted:
        known = image.topics.get(name)
        if known is not None:
            yield known, [index for index in dict.fromkeys(indexes) if 0 <= index < len(known.partitions)]


def _described(index: int, partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )

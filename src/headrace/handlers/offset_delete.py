"""OffsetDelete (47), v0. Forgets a group's positions in some partitions (KIP-496).

Positions in topics that the group reads are kept, and topics that do not exist are refused one by one.
"""

from __future__ import annotations

from headrace.groups.messages import DeleteOffsets, DeleteOffsetsReply
from headrace.handlers.context import Context, group_delete
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@api(OffsetDeleteRequest, OffsetDeleteResponse, versions=range(1), authorize=group_delete)
async def offset_delete(ctx: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Deletes a group's offsets of some partitions."""
    image = ctx.broker.metadata.image
    response = OffsetDeleteResponse()
    partitions: list[TopicPartition] = []
    accepted: list[OffsetDeleteResponsePartition] = []
    for topic in request.topics:
        answers = []
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            answer = OffsetDeleteResponsePartition(
                partition_index=one.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            answers.append(answer)
            if image.partition(partition) is not None:
                partitions.append(partition)
                accepted.append(answer)
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    reply = await ctx.broker.groups.ask(DeleteOffsets(request.group_id, tuple(partitions)), DeleteOffsetsReply)
    if reply.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=reply.error)
    for answer, error in zip(accepted, reply.errors, strict=True):
        answer.error_code = error
    return response

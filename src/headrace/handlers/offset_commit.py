"""OffsetCommit (8), v2-10. Stores a group's positions; answered when they are where the promise says.

v2-4 carry a retention time; v6 leader epoch of the position; v7 static members (KIP-345); v9 for members of
KIP-848 groups; v10 topics by id. Positions in topics or partitions that do not exist are refused one by one.
"""

from __future__ import annotations

from headrace.groups.messages import CommitOffsets, CommitReply, OffsetToCommit
from headrace.handlers.context import Context, group_read
from headrace.handlers.registry import api
from headrace.metadata.image import TopicImage
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicId
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_SINCE = 10


@api(OffsetCommitRequest, OffsetCommitResponse, versions=range(2, 11), authorize=group_read)
async def offset_commit(ctx: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Stores a group's positions."""
    offsets: list[OffsetToCommit] = []
    accepted: list[OffsetCommitResponsePartition] = []
    response = OffsetCommitResponse()
    for topic in request.topics:
        answers = _check_topic(ctx, topic, offsets, accepted)
        response.topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    if offsets:
        reply = await ctx.broker.groups.ask(
            CommitOffsets(
                request.group_id,
                tuple(offsets),
                request.generation_id_or_member_epoch,
                request.member_id,
                request.group_instance_id,
                request.retention_time_ms,
                version=ctx.version,
            ),
            CommitReply,
        )
        for answer, error in zip(accepted, reply.errors, strict=True):
            answer.error_code = error
    return response


def _check_topic(
    ctx: Context,
    asked: OffsetCommitRequestTopic,
    offsets: list[OffsetToCommit],
    accepted: list[OffsetCommitResponsePartition],
) -> list[OffsetCommitResponsePartition]:
    """An answer per partition; those that may be stored are also put into `offsets` and `accepted`."""
    topic, missing = _find_topic(ctx, asked)
    answers = []
    for one in asked.partitions:
        answer = OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=missing)
        answers.append(answer)
        if topic is not None and 0 <= one.partition_index < len(topic.partitions):
            accepted.append(answer)
            offsets.append(
                OffsetToCommit(
                    topic.name,
                    one.partition_index,
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.committed_metadata,
                    asked.topic_id,
                )
            )
    return answers


def _find_topic(ctx: Context, asked: OffsetCommitRequestTopic) -> tuple[TopicImage | None, ErrorCode]:
    """The topic, and what to say of a partition that it lacks."""
    image = ctx.broker.metadata.image
    if ctx.version < TOPIC_IDS_SINCE:
        return image.topics.get(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = image.topics_by_id.get(TopicId(asked.topic_id))
    return topic, ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

"""OffsetCommit (8), v2-10. Stores a group's positions; answered when they are where the promise says.

v2-4 carry a retention time; v6 leader epoch of the position; v7 static members (KIP-345); v9 for members of
KIP-848 groups; v10 topics by id. Positions in topics or partitions that do not exist are refused one by one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.groups.messages import CommitOffsets, CommitReply, OffsetToCommit
from headrace.handlers.context import Channel, Context, group_read
from headrace.handlers.group_requests import PendingAnswer
from headrace.handlers.registry import api
from headrace.metadata.image import MetadataImage, TopicImage
from headrace.model.errors import ErrorCode
from headrace.model.topics import NO_TOPIC_ID, TopicId
from headrace.services.groups.answer import Answer
from headrace.services.reply import NOT_QUICK, QuickReply
from headrace.wire.group_frames import (
    COMMIT_FLEXIBLE_SINCE,
    CommitFrame,
    CommittedTopic,
    commit_answer,
    even_commit_answer,
    one_position_answer,
    read_commit,
    read_one_position,
)
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from headrace.handlers.broker import Broker

TOPIC_IDS_SINCE = 10


_new_tuple = tuple.__new__
"""Makes a named tuple without a call into Python."""


class _PendingCommit(PendingAnswer):
    __slots__ = ("_topics",)

    def __init__(self, topics: list[CommittedTopic], answer: Answer) -> None:
        super().__init__(answer)
        self._topics = topics

    def body_of(self, reply: CommitReply) -> bytes:
        return commit_answer(self._topics, reply.errors)


def quick_offset_commit(channel: Channel, version: int, frame: memoryview, position: int) -> QuickReply:
    """Commits offsets of partitions that all exist."""
    if version < COMMIT_FLEXIBLE_SINCE:
        return NOT_QUICK
    broker = channel.broker
    one = read_one_position(frame, position, version)
    if one is not None:
        (member, name, topic_id, answer), partition, offset, leader_epoch = one
        image = broker.metadata.image
        if topic_id is None:
            topic, topic_id = image.topics.get(name), NO_TOPIC_ID
        else:
            topic = image.topics_by_id.get(TopicId(topic_id))
        if topic is not None and 0 <= partition < len(topic.partitions):
            fields = (topic.name, partition, offset, leader_epoch, None, topic_id)
            wanted = (_new_tuple(OffsetToCommit, fields),)
            answer_of = partial(one_position_answer, answer, partition)
            stored = broker.groups.quick_commit(member, version, wanted, answer_of)
            if stored is not None:
                return stored.body if stored.done else stored
    return _commit_of_many(broker, version, frame, position)


def _commit_of_many(broker: Broker, version: int, frame: memoryview, position: int) -> QuickReply:
    commit = read_commit(frame, position, version)
    if commit is None:
        return NOT_QUICK
    offsets = _offsets(broker.metadata.image, commit)
    if not offsets:
        return NOT_QUICK
    group_id, generation, member_id, instance_id, topics = commit
    member = group_id, generation, member_id, instance_id
    stored = broker.groups.quick_commit(member, version, offsets, partial(even_commit_answer, topics))
    if stored is not None:
        return stored.body if stored.done else stored
    reply = broker.groups.begin(
        CommitOffsets(group_id, tuple(offsets), generation, member_id, instance_id, version=version)
    )
    if type(reply) is Answer:
        return _PendingCommit(topics, reply)
    assert isinstance(reply, CommitReply)
    return commit_answer(topics, reply.errors)


def _offsets(image: MetadataImage, commit: CommitFrame) -> list[OffsetToCommit]:
    """What is to be stored; nothing if a partition does not exist."""
    offsets = []
    for _, name, topic_id, positions in commit.topics:
        if topic_id is None:
            topic, topic_id = image.topics.get(name), NO_TOPIC_ID
        else:
            topic = image.topics_by_id.get(TopicId(topic_id))
        if topic is None:
            return []
        count = len(topic.partitions)
        for partition, offset, leader_epoch, metadata in positions:
            if not 0 <= partition < count:
                return []
            fields = (topic.name, partition, offset, leader_epoch, metadata, topic_id)
            offsets.append(_new_tuple(OffsetToCommit, fields))
    return offsets


@api(
    OffsetCommitRequest,
    OffsetCommitResponse,
    versions=range(2, 11),
    quick=quick_offset_commit,
    authorize=group_read,
)
async def offset_commit(ctx: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Stores a group's offsets."""
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
    """A result per partition; offsets that may be stored are also put into `offsets` and `accepted`."""
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

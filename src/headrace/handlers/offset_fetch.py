"""OffsetFetch (9), v1-10. Reads a group's stored positions.

v2 null asks for all of them, and the group has an error of its own; v5 leader epoch; v7 require stable (KIP-447);
v8 many groups in one request; v9 the member's identity for KIP-848 groups; v10 topics by id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from headrace.groups.messages import FetchedOffset, FetchOffsets, FetchReply
from headrace.handlers.context import Context, each_once, group_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicId, TopicPartition
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP_ERROR_SINCE = 2
MANY_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10
NO_OFFSET = -1
PARTITIONS_AT_ONCE = 500
Asked = tuple[TopicPartition, ...] | None


@api(OffsetFetchRequest, OffsetFetchResponse, versions=range(1, 11), authorize=group_describe)
async def offset_fetch(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Returns a group's stored offsets."""
    if ctx.version < MANY_GROUPS_SINCE:
        return await _one_group(ctx, request)
    once = each_once(request.groups, lambda group: (group.group_id, group.topics is None))
    groups = [await _group(ctx, asked, request.require_stable) async for asked in ctx.each(once)]
    return OffsetFetchResponse(groups=groups)


async def _one_group(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    asked = request.topics
    partitions = None
    if asked is not None:
        partitions = [
            TopicPartition(topic.name, index)
            async for topic in ctx.each(asked)
            async for index in ctx.each(topic.partition_indexes)
        ]
    reply = await _fetch(
        ctx, partitions, lambda some: FetchOffsets(request.group_id, some, require_stable=request.require_stable)
    )
    offsets = reply.offsets
    if reply.error is not ErrorCode.NONE and ctx.version < GROUP_ERROR_SINCE:
        offsets = tuple(FetchedOffset(*partition, error=reply.error) for partition in partitions or ())
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=offset.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    metadata=offset.metadata,
                    error_code=offset.error,
                )
                async for offset in ctx.each(found)
            ],
        )
        async for name, found in ctx.each((await _by_topic(ctx, offsets)).items())
    ]
    return OffsetFetchResponse(topics=topics, error_code=reply.error)


async def _group(ctx: Context, asked: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    response = OffsetFetchResponseGroup(group_id=asked.group_id)
    partitions = None
    if asked.topics is not None:
        partitions = [partition async for partition in _named(ctx, asked.topics, response)]
    reply = await _fetch(
        ctx,
        partitions,
        lambda some: FetchOffsets(asked.group_id, some, asked.member_id, asked.member_epoch, require_stable),
    )
    response.error_code = reply.error
    if reply.error is not ErrorCode.NONE:
        response.topics = []
        return response
    async for name, offsets in ctx.each((await _by_topic(ctx, reply.offsets)).items()):
        known = ctx.broker.metadata.image.topics.get(name)
        if known is None and _by_id(ctx):
            continue  # it was deleted: there is no way to name it any more
        response.topics.append(
            OffsetFetchResponseTopics(
                name=name,
                topic_id=NO_TOPIC_ID if known is None else known.id,
                partitions=[_partition(offset) async for offset in ctx.each(offsets)],
            )
        )
    return response


def _by_id(ctx: Context) -> bool:
    return ctx.version >= TOPIC_IDS_SINCE


async def _named(
    ctx: Context, topics: list[OffsetFetchRequestTopics], response: OffsetFetchResponseGroup
) -> AsyncIterator[TopicPartition]:
    """The partitions by name; topics with an unknown id go into the response at once."""
    by_id = ctx.broker.metadata.image.topics_by_id
    async for topic in ctx.each(topics):
        name = topic.name
        if _by_id(ctx):
            known = by_id.get(TopicId(topic.topic_id))
            if known is None:
                response.topics.append(_unknown(topic))
                continue
            name = known.name
        async for index in ctx.each(topic.partition_indexes):
            yield TopicPartition(name, index)


def _unknown(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    missing = (FetchedOffset("", index, error=ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes)
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id, partitions=[_partition(offset) for offset in missing]
    )


def _partition(offset: FetchedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=offset.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error,
    )


async def _fetch(
    ctx: Context, partitions: list[TopicPartition] | None, ask: Callable[[Asked], FetchOffsets]
) -> FetchReply:
    """Some hundreds of partitions at a time, with others served between; None asks for all that are stored."""
    if partitions is None:
        return _fetch_some(ctx, ask(None))
    partitions = list(dict.fromkeys(partitions))
    if len(partitions) <= PARTITIONS_AT_ONCE:
        return _fetch_some(ctx, ask(tuple(partitions)))
    found: list[FetchedOffset] = []
    async for start in ctx.each(range(0, len(partitions), PARTITIONS_AT_ONCE)):
        reply = _fetch_some(ctx, ask(tuple(partitions[start : start + PARTITIONS_AT_ONCE])))
        if reply.error is not ErrorCode.NONE:
            return reply
        found += reply.offsets
    return FetchReply(ErrorCode.NONE, tuple(found))


def _fetch_some(ctx: Context, request: FetchOffsets) -> FetchReply:
    try:
        return ctx.broker.groups.coordinator(request.group_id).fetch_offsets(request)
    except KafkaError as error:
        return FetchReply(error.code, ())


async def _by_topic(ctx: Context, offsets: Iterable[FetchedOffset]) -> dict[str, list[FetchedOffset]]:
    topics: dict[str, list[FetchedOffset]] = {}
    async for offset in ctx.each(offsets):
        topics.setdefault(offset.topic, []).append(offset)
    return topics

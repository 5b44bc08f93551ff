"""DescribeTopicPartitions (75), v0. Topics' partitions page by page, in the order of topic names (KIP-966).

The empty list means all topics. A page ends after `response_partition_limit` partitions (at least one, at most
MAX_PAGE); the cursor says where the next one begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge
from itertools import islice

from headrace.handlers.context import Context, topic_describe
from headrace.handlers.listener_view import TOPIC_OPERATIONS, ListenerView
from headrace.handlers.registry import api
from headrace.metadata.image import PartitionImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition, check_topic_name
from headrace.wire.messages.describe_topic_partitions import (
    Cursor,
    CursorResult,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

MAX_PAGE = 2000
SORTED_AT_ONCE = 5000
"""Names: some milliseconds."""


@api(
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    versions=range(1),
    authorize=topic_describe,
)
async def describe_topic_partitions(
    ctx: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Returns where topics' partitions are, page by page."""
    asked = {topic.name async for topic in ctx.each(request.topics)}
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        refused = [
            _failed(name, ErrorCode.INVALID_REQUEST) async for name in ctx.each(await _in_order(ctx, asked))
        ]
        return DescribeTopicPartitionsResponse(topics=refused)
    view = ListenerView.of(ctx)
    names = await _in_order(ctx, asked or view.image.topics)
    left = max(1, min(request.response_partition_limit, MAX_PAGE))
    response = DescribeTopicPartitionsResponse()
    async for name in ctx.each(names):
        if cursor is not None and name < cursor.topic_name:
            continue
        if left == 0:
            response.next_cursor = CursorResult(topic_name=name, partition_index=0)
            break
        first = _first_partition(name, cursor)
        page = _page(view, name, first, left)
        response.topics.append(page)
        left -= len(page.partitions)
        next_partition = first + len(page.partitions)
        if name in view.image.topics and next_partition < len(view.image.topics[name].partitions):
            response.next_cursor = CursorResult(topic_name=name, partition_index=next_partition)
            break
    return response


async def _in_order(ctx: Context, names: Collection[str]) -> Iterator[str]:
    """Sorted in runs, so that others are served between, and merged as they are taken."""
    rest = iter(names)
    runs = []
    async for _ in ctx.each(range(0, len(names), SORTED_AT_ONCE)):
        runs.append(sorted(islice(rest, SORTED_AT_ONCE)))
    return merge(*runs)


def _first_partition(name: str, cursor: Cursor | None) -> int:
    return cursor.partition_index if cursor is not None and cursor.topic_name == name else 0


def _page(view: ListenerView, name: str, first: int, limit: int) -> DescribeTopicPartitionsResponseTopic:
    topic = view.image.topics.get(name)
    if topic is None:
        missing = _failed(name, _why_missing(name))
        missing.topic_authorized_operations = TOPIC_OPERATIONS
        return missing
    numbered = list(enumerate(topic.partitions))[first : first + limit]
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[_partition(view, TopicPartition(name, index), image) for index, image in numbered],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _why_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name)


def _partition(
    view: ListenerView, name: TopicPartition, image: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    seen = view.partition(name, image)
    return DescribeTopicPartitionsResponsePartition(
        error_code=seen.error,
        partition_index=name.partition,
        leader_id=seen.leader,
        leader_epoch=image.leader_epoch,
        replica_nodes=list(image.replicas),
        isr_nodes=list(image.isr),
        eligible_leader_replicas=list(image.elr),
        last_known_elr=list(image.last_known_elr),
        offline_replicas=seen.offline_replicas,
    )

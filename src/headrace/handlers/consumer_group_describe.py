"""ConsumerGroupDescribe (69), v0-1. State and members of KIP-848 groups.

v1 the kind of each member: of the classic or the consumer protocol (KIP-1099).
"""

from __future__ import annotations

from headrace.groups import describe
from headrace.handlers.context import Context, group_describe
from headrace.handlers.group_requests import GROUP_OPERATIONS, NOT_REQUESTED
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)


@api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, versions=range(2), authorize=group_describe)
async def consumer_group_describe(
    ctx: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describes consumer groups and their members."""
    groups = []
    async for group_id in ctx.each(dict.fromkeys(request.group_ids)):
        group = _described(_describe(ctx, group_id))
        found = request.include_authorized_operations and group.error_code == ErrorCode.NONE
        group.authorized_operations = GROUP_OPERATIONS if found else NOT_REQUESTED
        groups.append(group)
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(ctx: Context, group_id: str) -> describe.DescribedConsumerGroup:
    try:
        return ctx.broker.groups.coordinator(group_id).describe_consumer_group(group_id)
    except KafkaError as error:
        return describe.DescribedConsumerGroup(group_id, error.code)


def _described(group: describe.DescribedConsumerGroup) -> DescribedGroup:
    return DescribedGroup(
        error_code=group.error,
        error_message=group.message,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(member) for member in group.members],
    )


def _member(member: describe.DescribedConsumer) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target),
        member_type=member.member_type,
    )


def _assignment(topics: tuple[describe.DescribedTopic, ...]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.topic_id, topic_name=topic.topic, partitions=list(topic.partitions))
            for topic in topics
        ]
    )

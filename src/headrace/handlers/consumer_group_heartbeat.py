"""ConsumerGroupHeartbeat (68), v0-1. The one call of a KIP-848 member: join, report, learn the assignment, leave.

v1 subscription by regular expression (RE2, never backtracking), and the client makes its own member id (KIP-1082).
"""

from __future__ import annotations

from headrace.groups.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from headrace.handlers.context import Channel, Context, group_read
from headrace.handlers.group_requests import PendingReply, begin, client_of
from headrace.handlers.registry import api
from headrace.model.topics import TopicId
from headrace.services.reply import NOT_QUICK, QuickReply
from headrace.wire.group_frames import client_id_of, consumer_heartbeat_answer, read_consumer_heartbeat
from headrace.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsResult,
)


def quick_consumer_group_heartbeat(channel: Channel, version: int, frame: memoryview, position: int) -> QuickReply:
    """A heartbeat without news, in a group where nothing is to be done."""
    request = read_consumer_heartbeat(frame, position, version)
    client_id = client_id_of(frame)
    if request is None or client_id is None:
        return NOT_QUICK
    client = (client_id, f"/{channel.client_host}")
    interval_ms = channel.broker.groups.quick_consumer_heartbeat(*request, client)
    if interval_ms is None:
        return NOT_QUICK
    return consumer_heartbeat_answer(request.member_id, request.member_epoch, interval_ms)


@api(
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    versions=range(2),
    quick=quick_consumer_group_heartbeat,
    authorize=group_read,
)
def consumer_group_heartbeat(
    ctx: Context, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | PendingReply[ConsumerGroupHeartbeatResponse]:
    """Joins, stays in and leaves a consumer group, and returns the member's partitions."""
    return begin(ctx, _received(ctx, request), ConsumerHeartbeatReply, _response)


def _response(reply: ConsumerHeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=_assignment(reply),
    )


def _received(ctx: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    owned = None
    if request.topic_partitions is not None:
        owned = {TopicId(topic.topic_id): frozenset(topic.partitions) for topic in request.topic_partitions}
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        owned,
        client_of(ctx),
        ctx.version,
    )


def _assignment(reply: ConsumerHeartbeatReply) -> Assignment | None:
    if reply.assignment is None:
        return None
    return Assignment(
        topic_partitions=[
            TopicPartitionsResult(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in reply.assignment.items()
        ]
    )

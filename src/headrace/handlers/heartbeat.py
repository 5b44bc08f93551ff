"""Heartbeat (12), v0-4. Keeps a member of a classic group alive, and tells it when to rejoin.

v1 throttle time; v3 static members (KIP-345).
"""

from __future__ import annotations

from headrace.groups.messages import Heartbeat, HeartbeatReply
from headrace.handlers.context import Channel, Context, group_read
from headrace.handlers.group_requests import PendingReply, begin
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.services.reply import NOT_QUICK, QuickReply
from headrace.wire.group_frames import HEARTBEAT_FLEXIBLE_SINCE, heartbeat_answer, read_heartbeat
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

_STILL_A_MEMBER = heartbeat_answer(ErrorCode.NONE)


def quick_heartbeat(channel: Channel, version: int, frame: memoryview, position: int) -> QuickReply:
    """A heartbeat in a stable group: only the member's session changes."""
    if version < HEARTBEAT_FLEXIBLE_SINCE:
        return NOT_QUICK
    request = read_heartbeat(frame, position)
    if request is None or not channel.broker.groups.quick_heartbeat(*request):
        return NOT_QUICK
    return _STILL_A_MEMBER


@api(HeartbeatRequest, HeartbeatResponse, versions=range(5), quick=quick_heartbeat, authorize=group_read)
def heartbeat(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse | PendingReply[HeartbeatResponse]:
    """Keeps a member of a classic group alive."""
    return begin(
        ctx,
        Heartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id),
        HeartbeatReply,
        _response,
    )


def _response(reply: HeartbeatReply) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=reply.error)

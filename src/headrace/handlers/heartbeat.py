"""Heartbeat (12), v0-4. Keeps a member of a classic group alive, and tells it when to rejoin.

v1 throttle time; v3 static members (KIP-345).
"""

from __future__ import annotations

from collections.abc import Awaitable

from headrace.groups.messages import Heartbeat, HeartbeatReply
from headrace.handlers.context import Context, group_read
from headrace.handlers.group_requests import begin
from headrace.handlers.registry import api
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@api(HeartbeatRequest, HeartbeatResponse, versions=range(5), authorize=group_read)
def heartbeat(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    """Keeps a member of a classic group alive."""
    return begin(
        ctx,
        Heartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id),
        HeartbeatReply,
        _response,
    )


def _response(reply: HeartbeatReply) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=reply.error)

"""SyncGroup (14), v0-5. The leader hands in the assignment; every member waits for its own part of it.

v3 static members (KIP-345); v5 protocol type and name must be told and are checked (KIP-559).
"""

from __future__ import annotations

from headrace.groups.messages import SyncGroup, SyncReply
from headrace.handlers.context import Context, group_read
from headrace.handlers.group_requests import PendingReply, begin
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_REQUIRED_SINCE = 5


@api(SyncGroupRequest, SyncGroupResponse, versions=range(6), authorize=group_read)
def sync_group(ctx: Context, request: SyncGroupRequest) -> SyncGroupResponse | PendingReply[SyncGroupResponse]:
    """Takes the assignment of a classic group, and returns each member's part."""
    if ctx.version >= PROTOCOL_REQUIRED_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return begin(
        ctx,
        SyncGroup(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            tuple((assignment.member_id, assignment.assignment) for assignment in request.assignments),
        ),
        SyncReply,
        _response,
    )


def _response(reply: SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )

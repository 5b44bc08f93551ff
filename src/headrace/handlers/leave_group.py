"""LeaveGroup (13), v0-5. Takes members out of a group, those of the consumer protocol too: administrators use it.

v3 several members at once, by member id or instance id, each with its own error (KIP-345); before, the one
member's error is that of the answer; v5 the reason, which is only for people.
"""

from __future__ import annotations

from headrace.groups.messages import LeaveGroup, Leaver, LeaveReply
from headrace.handlers.context import Context, group_read
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

BATCHED_SINCE = 3


@api(LeaveGroupRequest, LeaveGroupResponse, versions=range(6), authorize=group_read)
async def leave_group(ctx: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Takes members out of a group."""
    batched = ctx.version >= BATCHED_SINCE
    if batched:
        leavers = tuple(Leaver(member.member_id, member.group_instance_id) for member in request.members)
    else:
        leavers = (Leaver(request.member_id),)
    reply = await ctx.broker.groups.ask(LeaveGroup(request.group_id, leavers), LeaveReply)
    if not batched:
        error = next((member.error for member in reply.members), ErrorCode.NONE)
        return LeaveGroupResponse(error_code=reply.error or error)
    return LeaveGroupResponse(
        error_code=reply.error,
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.instance_id, error_code=member.error
            )
            for member in reply.members
        ],
    )

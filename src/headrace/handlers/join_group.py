"""JoinGroup (11), v0-9. Enters a classic group, or its next generation; answered when the generation begins.

v1 rebalance timeout; v4 a new member is first told its id (KIP-394); v5 static members (KIP-345); v7 protocol type
in the answer (KIP-559); v8 the reason, which is only logged; v9 the leader may skip the assignment.
"""

from __future__ import annotations

from headrace.groups.events import ClassicProtocol
from headrace.groups.messages import JoinGroup, JoinReply
from headrace.handlers.context import Context, group_read
from headrace.handlers.group_requests import client_of
from headrace.handlers.registry import api
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

NULL_PROTOCOL_SINCE = 7


@api(JoinGroupRequest, JoinGroupResponse, versions=range(10), authorize=group_read)
async def join_group(ctx: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    """Enters a classic consumer group, or its next generation."""
    reply = await ctx.broker.groups.ask(
        JoinGroup(
            request.group_id,
            request.member_id,
            request.protocol_type,
            tuple(ClassicProtocol(protocol.name, protocol.metadata) for protocol in request.protocols),
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.group_instance_id,
            client_of(ctx),
            ctx.version,
        ),
        JoinReply,
    )
    no_protocol = None if ctx.version >= NULL_PROTOCOL_SINCE else ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=no_protocol if reply.protocol is None else reply.protocol,
        leader=reply.leader or "",
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )

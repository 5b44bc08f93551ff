"""DescribeGroups (15), v0-6. State and members of classic groups.

v3 authorized operations; v4 static members; v6 an unknown group is an error, before that a dead group (KIP-1043).
"""

from __future__ import annotations

from headrace.groups import describe
from headrace.handlers.context import Context, group_describe
from headrace.handlers.group_requests import GROUP_OPERATIONS, NOT_REQUESTED
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

ERROR_MESSAGE_SINCE = 6


@api(DescribeGroupsRequest, DescribeGroupsResponse, versions=range(7), authorize=group_describe)
async def describe_groups(ctx: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describes classic groups and their members."""
    groups = []
    async for group_id in ctx.each(dict.fromkeys(request.groups)):
        group = _described(_describe(ctx, group_id), ctx.version)
        found = request.include_authorized_operations and group.error_code == ErrorCode.NONE
        group.authorized_operations = GROUP_OPERATIONS if found else NOT_REQUESTED
        groups.append(group)
    return DescribeGroupsResponse(groups=groups)


def _describe(ctx: Context, group_id: str) -> describe.DescribedGroup:
    try:
        return ctx.broker.groups.coordinator(group_id).describe_group(group_id, ctx.version)
    except KafkaError as error:
        return describe.DescribedGroup(group_id, error.code)


def _described(group: describe.DescribedGroup, version: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=group.error,
        error_message=group.message if version >= ERROR_MESSAGE_SINCE else None,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )

"""ListGroups (16), v0-5. The groups this broker coordinates.

v4 filter by state, and the state in the answer (KIP-518); v5 the same for types (KIP-848).
"""

from __future__ import annotations

from headrace.handlers.context import Context, group_describe
from headrace.handlers.registry import api
from headrace.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


@api(ListGroupsRequest, ListGroupsResponse, versions=range(6), authorize=group_describe)
async def list_groups(ctx: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    """Lists the groups that this broker coordinates."""
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for coordinator in ctx.broker.groups.coordinators()
            for group in coordinator.list_groups(request.states_filter, request.types_filter)
        ]
    )

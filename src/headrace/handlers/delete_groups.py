"""DeleteGroups (42), v0-2. Removes empty groups with their offsets, each with an outcome of its own."""

from __future__ import annotations

import asyncio

from headrace.groups.messages import DeleteGroupReply
from headrace.handlers.context import Context, group_delete
from headrace.handlers.registry import api
from headrace.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@api(DeleteGroupsRequest, DeleteGroupsResponse, versions=range(3), authorize=group_delete)
async def delete_groups(ctx: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Removes empty groups with their offsets."""
    groups = list(dict.fromkeys(request.groups_names))
    replies = await asyncio.gather(*(ctx.broker.groups.ask(group_id, DeleteGroupReply) for group_id in groups))
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=reply.error)
            for group_id, reply in zip(groups, replies, strict=True)
        ]
    )

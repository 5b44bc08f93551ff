"""FindCoordinator (10), v0-6. Which broker coordinates a group or a transactional id.

v1 key type; v4 many keys in one request (KIP-699); v6 share groups. There are no groups or transactions yet:
every key gets COORDINATOR_NOT_AVAILABLE, which clients retry. The API is there because librdkafka uses lz4 only
with a broker that has it.
"""

from __future__ import annotations

from headrace.handlers.context import Context, group_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHED_SINCE = 4
GROUP, TRANSACTION = 0, 1
NO_NODE = -1


@api(FindCoordinatorRequest, FindCoordinatorResponse, versions=range(7), authorize=group_describe)
async def find_coordinator(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Tells which broker coordinates a group or a transactional id."""
    error, message = _unavailable(request.key_type)
    if ctx.version < BATCHED_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=NO_NODE, port=NO_NODE)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=NO_NODE, port=NO_NODE, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ]
    )


def _unavailable(key_type: int) -> tuple[ErrorCode, str]:
    if key_type not in (GROUP, TRANSACTION):
        return ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}"
    return ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."

"""ListPartitionReassignments (46), v0. The moves of replicas that are under way (KIP-455): none yet."""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_describe
from headrace.handlers.registry import api
from headrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@api(
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    versions=range(1),
    authorize=cluster_describe,
)
def list_partition_reassignments(
    ctx: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Lists the moves of replicas between brokers that are under way."""
    return ListPartitionReassignmentsResponse(error_message=None)

"""DeleteAcls (31), v1-3. Removes the access rules that match filters, and says which they were.

v3 users as a resource type. There is no authorizer yet: as with a Kafka broker without one, each filter gets
SECURITY_DISABLED.
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.describe_acls import NO_AUTHORIZER
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


@api(DeleteAclsRequest, DeleteAclsResponse, versions=range(1, 4), authorize=cluster_alter)
def delete_acls(ctx: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Removes access rules; without an authorizer it is SECURITY_DISABLED."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.filters
        ]
    )

"""CreateAcls (30), v1-3. Adds access rules.

v3 users as a resource type. There is no authorizer yet: as with a Kafka broker without one, each rule gets
SECURITY_DISABLED.
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.describe_acls import NO_AUTHORIZER
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@api(CreateAclsRequest, CreateAclsResponse, versions=range(1, 4), authorize=cluster_alter)
def create_acls(ctx: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    """Adds access rules; without an authorizer it is SECURITY_DISABLED."""
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.creations
        ]
    )

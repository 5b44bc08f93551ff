"""DescribeAcls (29), v1-3. The access rules that match a filter.

v3 users as a resource type. There is no authorizer yet: as a Kafka broker without one, SECURITY_DISABLED.
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER = "This broker has no authorizer: everybody may do everything."


@api(DescribeAclsRequest, DescribeAclsResponse, versions=range(1, 4), authorize=cluster_describe)
def describe_acls(ctx: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Lists access rules; without an authorizer it is SECURITY_DISABLED."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)

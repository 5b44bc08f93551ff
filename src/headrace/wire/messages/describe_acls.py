"""DescribeAcls (29): list the access rules that match a filter.

v1 pattern types (KIP-290); v2 flexible; v3 users as a resource type.
"""

from __future__ import annotations

from headrace.wire.primitives import INT8, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class DescribeAclsRequest(Request, key=29, versions=range(1, 4), flexible=2):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable=0)
    pattern_type_filter: int = field(INT8, default=3)
    principal_filter: str | None = field(STRING, nullable=0)
    host_filter: str | None = field(STRING, nullable=0)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class AclDescription(Struct):
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DescribeAclsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, default=3)
    acls: list[AclDescription] = field(array(AclDescription))


class DescribeAclsResponse(Response, key=29, versions=range(1, 4), flexible=2):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resources: list[DescribeAclsResource] = field(array(DescribeAclsResource))

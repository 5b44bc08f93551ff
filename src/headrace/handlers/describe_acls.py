"""DescribeAcls (29), v1-3. The access rules that match a filter.

v3 users as a resource type. Without an authorizer it is SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from headrace.handlers.broker import Broker
from headrace.handlers.context import Context, cluster_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.acl import Acl, Pattern, Resource, filter_of
from headrace.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def has_authorizer(broker: Broker) -> bool:
    return bool(broker.config.text("authorizer.class.name"))


def no_authorizer() -> KafkaError:
    detail = "This broker has no authorizer: everybody may do everything. authorizer.class.name turns it on."
    return KafkaError(ErrorCode.SECURITY_DISABLED, detail)


@api(DescribeAclsRequest, DescribeAclsResponse, versions=range(1, 4), authorize=cluster_describe)
def describe_acls(ctx: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Lists access rules."""
    if not has_authorizer(ctx.broker):
        disabled = no_authorizer()
        return DescribeAclsResponse(error_code=disabled.code, error_message=disabled.message)
    wanted = filter_of(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    found = sorted(acl for acl in ctx.broker.metadata.image.acls.values() if wanted.matches(acl))
    by_resource = groupby(found, lambda acl: (acl.resource, acl.name, acl.pattern))
    return DescribeAclsResponse(
        error_message=None, resources=[_described(resource, acls) for resource, acls in by_resource]
    )


def _described(resource: tuple[Resource, str, Pattern], acls: Iterable[Acl]) -> DescribeAclsResource:
    kind, name, pattern = resource
    return DescribeAclsResource(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern,
        acls=[
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
            for acl in acls
        ],
    )

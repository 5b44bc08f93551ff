"""DeleteAcls (31), v1-3. Removes the access rules that match filters, and says which they were.

v3 users as a resource type. Without an authorizer each filter gets SECURITY_DISABLED.
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.describe_acls import has_authorizer, no_authorizer
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.model.errors import KafkaError
from headrace.security.acl import Acl, AclFilter, filter_of
from headrace.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


@api(DeleteAclsRequest, DeleteAclsResponse, versions=range(1, 4), authorize=cluster_alter)
@on_controller(DeleteAclsResponse)
async def delete_acls(ctx: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Removes access rules."""
    outcomes: list[list[Acl] | KafkaError]
    try:
        if not has_authorizer(ctx.broker):
            raise no_authorizer()
        outcomes = await ctx.broker.controller.delete_acls([_wanted(wanted) for wanted in request.filters])
    except KafkaError as error:
        outcomes = [error for _ in request.filters]
    return DeleteAclsResponse(filter_results=[_result(outcome) for outcome in outcomes])


def _wanted(wanted: DeleteAclsFilter) -> AclFilter | KafkaError:
    try:
        return filter_of(
            wanted.resource_type_filter,
            wanted.resource_name_filter,
            wanted.pattern_type_filter,
            wanted.principal_filter,
            wanted.host_filter,
            wanted.operation,
            wanted.permission_type,
        )
    except KafkaError as error:
        return error


def _result(outcome: list[Acl] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(outcome, KafkaError):
        return DeleteAclsFilterResult(error_code=outcome.code, error_message=outcome.message)
    return DeleteAclsFilterResult(error_message=None, matching_acls=[_removed(acl) for acl in outcome])


def _removed(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )

"""CreateAcls (30), v1-3. Adds access rules.

v3 users as a resource type. A rule that is there already is a success. Without an authorizer each rule gets
SECURITY_DISABLED.
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.describe_acls import has_authorizer, no_authorizer
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.model.errors import KafkaError
from headrace.security.acl import Acl, acl_of
from headrace.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


@api(CreateAclsRequest, CreateAclsResponse, versions=range(1, 4), authorize=cluster_alter)
@on_controller(CreateAclsResponse)
async def create_acls(ctx: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    """Adds access rules."""
    outcomes: list[KafkaError | None]
    try:
        if not has_authorizer(ctx.broker):
            raise no_authorizer()
        outcomes = await ctx.broker.controller.create_acls([_wanted(creation) for creation in request.creations])
    except KafkaError as error:
        outcomes = [error for _ in request.creations]
    return CreateAclsResponse(results=[_result(outcome) for outcome in outcomes])


def _wanted(creation: AclCreation) -> Acl | KafkaError:
    try:
        return acl_of(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
    except KafkaError as error:
        return error


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=error.code, error_message=error.message)

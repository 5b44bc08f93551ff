"""Access rules of a cluster, as a client asks for them. The numbers are Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import Outcome, kafka_error
from headrace.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from headrace.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from headrace.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


class AclBinding(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclQuery(NamedTuple):
    """The rules to look for; 1 is any type, pattern, operation or permission, None any name, principal or host."""

    resource_type: int = 1
    resource_name: str | None = None
    pattern_type: int = 1
    principal: str | None = None
    host: str | None = None
    operation: int = 1
    permission: int = 1


async def create_acls(cluster: Cluster, acls: Sequence[AclBinding]) -> list[Outcome]:
    """Create rules; for each its error or None."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
    connection = await cluster.entry()
    response = await connection.request(request, CreateAclsResponse)
    return [
        kafka_error(result.error_code, result.error_message) if result.error_code else None
        for result in response.results
    ]


async def describe_acls(cluster: Cluster, query: AclQuery) -> list[AclBinding]:
    request = DescribeAclsRequest(**_filter(query))
    response = await (await cluster.entry()).request(request, DescribeAclsResponse)
    if response.error_code:
        raise kafka_error(response.error_code, response.error_message)
    return [
        AclBinding(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]


async def delete_acls(cluster: Cluster, query: AclQuery) -> list[AclBinding]:
    """Delete the rules that match the query; returns the deleted ones."""
    wanted = DeleteAclsFilter(**_filter(query))
    connection = await cluster.entry()
    response = await connection.request(DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse)
    (result,) = response.filter_results
    if result.error_code:
        raise kafka_error(result.error_code, result.error_message)
    return [
        AclBinding(
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for acl in result.matching_acls
    ]


def _filter(query: AclQuery) -> dict[str, Any]:
    """The filter fields that both requests have."""
    return {
        "resource_type_filter": query.resource_type,
        "resource_name_filter": query.resource_name,
        "pattern_type_filter": query.pattern_type,
        "principal_filter": query.principal,
        "host_filter": query.host,
        "operation": query.operation,
        "permission_type": query.permission,
    }

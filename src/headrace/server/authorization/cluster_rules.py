"""Rules of the APIs about the cluster whose responses say what went wrong for each item, and about settings."""

from __future__ import annotations

from typing import TypeVar

from headrace.handlers.listener_view import NOT_REQUESTED
from headrace.model.config_resources import ResourceType
from headrace.model.errors import ErrorCode
from headrace.security.acl import CLUSTER_NAME, Operation, Resource
from headrace.server.authorization.asking import (
    MESSAGES,
    NOT_ON_CLUSTER,
    NOT_THIS_GROUP,
    NOT_THIS_TOPIC,
    Asking,
    Rule,
    Ruling,
    split,
)
from headrace.wire.messages import alter_client_quotas as quotas
from headrace.wire.messages import alter_configs as altering
from headrace.wire.messages import alter_replica_log_dirs as moving
from headrace.wire.messages import alter_user_scram_credentials as users
from headrace.wire.messages import create_acls as creating
from headrace.wire.messages import delete_acls as deleting
from headrace.wire.messages import describe_configs as describing
from headrace.wire.messages import elect_leaders as electing
from headrace.wire.messages import incremental_alter_configs as incremental
from headrace.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

ALTER, DESCRIBE = Operation.ALTER, Operation.DESCRIBE
ALTER_CONFIGS, DESCRIBE_CONFIGS = Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS
WHOLE_ERROR_SINCE = 1
"""The version of ElectLeaders from which on there is an error for the whole request."""
MESSAGE = MESSAGES[NOT_ON_CLUSTER]


def describe_cluster(asking: Asking, request: DescribeClusterRequest) -> Ruling:
    """Any connected client knows the brokers anyway: only the operations depend on the principal."""

    def complete(response: DescribeClusterResponse) -> None:
        if response.cluster_authorized_operations != NOT_REQUESTED:
            bits = response.cluster_authorized_operations
            response.cluster_authorized_operations = asking.operations(Resource.CLUSTER, CLUSTER_NAME, bits)

    return complete


def create_acls(asking: Asking, request: creating.CreateAclsRequest) -> Ruling:
    if asking.cluster(ALTER):
        return None
    refused = [
        creating.AclCreationResult(error_code=NOT_ON_CLUSTER, error_message=MESSAGE) for _ in request.creations
    ]
    return creating.CreateAclsResponse(results=refused)


def delete_acls(asking: Asking, request: deleting.DeleteAclsRequest) -> Ruling:
    if asking.cluster(ALTER):
        return None
    refused = [
        deleting.DeleteAclsFilterResult(error_code=NOT_ON_CLUSTER, error_message=MESSAGE) for _ in request.filters
    ]
    return deleting.DeleteAclsResponse(filter_results=refused)


def describe_log_dirs(asking: Asking, request: DescribeLogDirsRequest) -> Ruling:
    """Before version 3 there is no field for the error: the response is empty."""
    return None if asking.cluster(DESCRIBE) else DescribeLogDirsResponse(error_code=NOT_ON_CLUSTER)


def alter_replica_log_dirs(asking: Asking, request: moving.AlterReplicaLogDirsRequest) -> Ruling:
    if asking.cluster(ALTER):
        return None
    return moving.AlterReplicaLogDirsResponse(
        results=[
            moving.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    moving.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=NOT_ON_CLUSTER)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def elect_leaders(asking: Asking, request: electing.ElectLeadersRequest) -> Ruling:
    if asking.cluster(ALTER):
        return None
    return electing.ElectLeadersResponse(
        error_code=NOT_ON_CLUSTER if asking.version >= WHOLE_ERROR_SINCE else ErrorCode.NONE,
        replica_election_results=[
            electing.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    electing.PartitionResult(partition_id=index, error_code=NOT_ON_CLUSTER, error_message=MESSAGE)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def alter_client_quotas(asking: Asking, request: quotas.AlterClientQuotasRequest) -> Ruling:
    if asking.cluster(ALTER_CONFIGS):
        return None
    return quotas.AlterClientQuotasResponse(
        entries=[
            quotas.EntryDataResult(
                error_code=NOT_ON_CLUSTER,
                error_message=MESSAGE,
                entity=[
                    quotas.EntityDataResult(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def alter_user_scram_credentials(asking: Asking, request: users.AlterUserScramCredentialsRequest) -> Ruling:
    if asking.cluster(ALTER):
        return None
    names = dict.fromkeys([*(one.name for one in request.deletions), *(one.name for one in request.upsertions)])
    return users.AlterUserScramCredentialsResponse(
        results=[
            users.AlterUserScramCredentialsResult(user=name, error_code=NOT_ON_CLUSTER, error_message=MESSAGE)
            for name in names
        ]
    )


def _config_refusal(asking: Asking, operation: Operation, kind: int, name: str) -> ErrorCode | None:
    """Why the settings of a resource may not be read or changed. Unknown kinds are left to the handler."""
    if kind == ResourceType.TOPIC:
        return None if asking.topic(operation, name) else NOT_THIS_TOPIC
    if kind == ResourceType.GROUP:
        return None if asking.group(operation, name) else NOT_THIS_GROUP
    return None if asking.cluster(operation) else NOT_ON_CLUSTER


def describe_configs(asking: Asking, request: describing.DescribeConfigsRequest) -> Ruling:
    def allowed(resource: describing.DescribeConfigsResource) -> bool:
        return _config_refusal(asking, DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name) is None

    request.resources, denied = split(request.resources, allowed)

    def complete(response: describing.DescribeConfigsResponse) -> None:
        for resource in denied:
            code = _config_refusal(asking, DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
            assert code is not None
            response.results.append(
                describing.DescribeConfigsResult(
                    error_code=code,
                    error_message=MESSAGES[code],
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )

    return complete if denied else None


Altering = TypeVar("Altering", altering.AlterConfigsRequest, incremental.IncrementalAlterConfigsRequest)


def alter_configs(asking: Asking, request: Altering) -> Ruling:
    """For whole sets of settings and for single ones."""

    def refusal(resource: altering.AlterConfigsResource | incremental.AlterConfigsResource) -> ErrorCode | None:
        return _config_refusal(asking, ALTER_CONFIGS, resource.resource_type, resource.resource_name)

    request.resources, denied = split(request.resources, lambda resource: refusal(resource) is None)

    def complete(response: altering.AlterConfigsResponse | incremental.IncrementalAlterConfigsResponse) -> None:
        for resource in denied:
            code = refusal(resource)
            assert code is not None
            response.responses.append(
                altering.AlterConfigsResourceResponse(
                    error_code=code,
                    error_message=MESSAGES[code],
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )

    return complete if denied else None


CLUSTER_RULES: dict[int, Rule] = {
    DescribeClusterRequest.api_key: describe_cluster,
    creating.CreateAclsRequest.api_key: create_acls,
    deleting.DeleteAclsRequest.api_key: delete_acls,
    DescribeLogDirsRequest.api_key: describe_log_dirs,
    moving.AlterReplicaLogDirsRequest.api_key: alter_replica_log_dirs,
    electing.ElectLeadersRequest.api_key: elect_leaders,
    quotas.AlterClientQuotasRequest.api_key: alter_client_quotas,
    users.AlterUserScramCredentialsRequest.api_key: alter_user_scram_credentials,
    describing.DescribeConfigsRequest.api_key: describe_configs,
    altering.AlterConfigsRequest.api_key: alter_configs,
    incremental.IncrementalAlterConfigsRequest.api_key: alter_configs,
}

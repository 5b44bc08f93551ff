"""What an administrator asks of a cluster: topics, partitions, settings, records, data directories.

Calls about several things answer for each of them, with the error where there was one, so that the caller can say
what was done and what was not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection
from headrace.client.errors import Outcome, kafka_error
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import RETRIABLE, ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from headrace.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

BROKER_DEFAULT = -1


class ConfigResource(NamedTuple):
    type: ResourceType
    name: str
    """A topic, a broker's number, "" for all brokers, or a group."""


CONFIG_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    6: "logger",
    8: "group",
}
BROKER_SOURCE = 2
DEFAULT_SOURCE = 5


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Sequence[Sequence[int]] = ()
    """The replicas of each partition, by hand."""


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    sensitive: bool
    documentation: str | None


async def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], validate_only: bool = False
) -> dict[str, Outcome]:
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics],
        timeout_ms=_timeout_ms(cluster),
        validate_only=validate_only,
    )

    async def attempt() -> dict[str, Outcome]:
        response = await (await cluster.controller()).request(request, CreateTopicsResponse)
        return _settled({topic.name: _outcome(topic.error_code, topic.error_message) for topic in response.topics})

    return await cluster.retrying(attempt, repeatable=False)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(topic.assignment)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, Outcome]:
    async def attempt() -> dict[str, Outcome]:
        request = DeleteTopicsRequest(timeout_ms=_timeout_ms(cluster))
        controller = await cluster.controller()
        if controller.version_for(DeleteTopicsRequest) >= 6:
            request.topics = [DeleteTopicState(name=name) for name in names]
        else:
            request.topic_names = list(names)
        response = await controller.request(request, DeleteTopicsResponse)
        return _settled(
            {topic.name or "": _outcome(topic.error_code, topic.error_message) for topic in response.responses}
        )

    return await cluster.retrying(attempt, repeatable=False)


async def create_partitions(cluster: Cluster, name: str, total: int, validate_only: bool = False) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=total, assignments=None)],
        timeout_ms=_timeout_ms(cluster),
        validate_only=validate_only,
    )

    async def attempt() -> None:
        response = await (await cluster.controller()).request(request, CreatePartitionsResponse)
        for result in response.results:
            if result.error_code:
                raise kafka_error(result.error_code, result.error_message)

    await cluster.retrying(attempt, repeatable=False)


async def describe_configs(
    cluster: Cluster, resource: ConfigResource, names: Sequence[str] | None = None, documentation: bool = False
) -> list[ConfigEntry]:
    """The settings of a topic, a broker or a group, by name. A broker is asked itself."""
    asked = DescribeConfigsResource(
        resource_type=int(resource.type),
        resource_name=resource.name,
        configuration_keys=None if names is None else list(names),
    )
    connection = await _connection_for(cluster, resource)
    has_documentation = connection.version_for(DescribeConfigsRequest) >= 3
    request = DescribeConfigsRequest(
        resources=[asked], include_synonyms=False, include_documentation=documentation and has_documentation
    )
    (result,) = (await connection.request(request, DescribeConfigsResponse)).results
    if result.error_code:
        raise kafka_error(result.error_code, result.error_message)
    return sorted(_config_entry(entry) for entry in result.configs)


async def configured(cluster: Cluster, kind: ResourceType) -> list[str]:
    """The names of all topics or brokers, or of the groups that have settings of their own."""
    request = ListConfigResourcesRequest(resource_types=[int(kind)])
    response = await (await cluster.controller()).request(request, ListConfigResourcesResponse)
    if response.error_code:
        raise kafka_error(response.error_code)
    return sorted(one.resource_name for one in response.config_resources)


def _config_entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    source = CONFIG_SOURCES.get(entry.config_source, "unknown")
    is_default = entry.config_source == DEFAULT_SOURCE
    return ConfigEntry(
        entry.name, entry.value, source, is_default, entry.read_only, entry.is_sensitive, entry.documentation
    )


async def alter_configs(
    cluster: Cluster,
    resource: ConfigResource,
    changes: Sequence[tuple[str, ConfigOperation, str | None]],
    validate_only: bool = False,
) -> None:
    """Change single settings: (name, operation, value)."""
    configs = [
        AlterableConfig(name=name, config_operation=int(operation), value=value)
        for name, operation, value in changes
    ]
    altered = AlterConfigsResource(resource_type=int(resource.type), resource_name=resource.name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[altered], validate_only=validate_only)

    async def attempt() -> None:
        connection = await _connection_for(cluster, resource)
        (result,) = (await connection.request(request, IncrementalAlterConfigsResponse)).responses
        if result.error_code:
            raise kafka_error(result.error_code, result.error_message)

    await cluster.retrying(attempt)


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError]:
    """Delete the records before an offset (-1: all of them); returns the new first offset of each partition."""

    async def attempt() -> dict[TopicPartition, int | KafkaError]:
        done = await _delete_records(cluster, before)
        passing = (error for error in done.values() if isinstance(error, KafkaError) and error.code in RETRIABLE)
        if (error := next(passing, None)) is not None:
            raise error
        return done

    return await cluster.retrying(attempt)


async def _delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError]:
    done: dict[TopicPartition, int | KafkaError] = {}
    for leader, partitions in (await cluster.by_leader(before)).items():
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for one in partitions:
            wanted = DeleteRecordsPartition(partition_index=one.partition, offset=before[one])
            topics.setdefault(one.topic, []).append(wanted)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=wanted) for name, wanted in topics.items()],
            timeout_ms=_timeout_ms(cluster),
        )
        response = await (await cluster.broker(leader)).request(request, DeleteRecordsResponse)
        for topic in response.topics:
            for result in topic.partitions:
                error = _outcome(result.error_code, None)
                done[TopicPartition(topic.name, result.partition_index)] = error or result.low_watermark
    return done


async def controller_of(cluster: Cluster) -> int:
    """The broker that is the controller, or -1. Metadata would name any broker that takes its requests."""
    response = await (await cluster.entry()).request(DescribeClusterRequest(), DescribeClusterResponse)
    if response.error_code:
        raise kafka_error(response.error_code, response.error_message)
    return response.controller_id


async def describe_log_dirs(cluster: Cluster, broker_id: int) -> list[DescribeLogDirsResult]:
    """The data directories of a broker and the partitions in them."""
    connection = await cluster.broker(broker_id)
    response = await connection.request(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    if response.error_code:
        raise kafka_error(response.error_code)
    return response.results


async def _connection_for(cluster: Cluster, resource: ConfigResource) -> ClientConnection:
    if resource.type == ResourceType.BROKER and resource.name:
        return await cluster.broker(int(resource.name))
    return await cluster.controller()


def _outcome(code: int, message: str | None) -> Outcome:
    return kafka_error(code, message) if code else None


def _settled(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    """The outcomes, unless the controller has moved: then nothing was done, and another must be asked."""
    for error in outcomes.values():
        if error is not None and error.code == ErrorCode.NOT_CONTROLLER:
            raise error
    return outcomes


def _timeout_ms(cluster: Cluster) -> int:
    return int(cluster.settings.request_timeout_s * 1000)

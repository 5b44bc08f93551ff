"""Requests of the archive other than for offsets: the cluster's id, and the settings of a topic."""

from __future__ import annotations

from headrace.client.errors import kafka_error
from headrace.client.requests import metadata_request, metadata_view
from headrace.model.config_resources import ResourceType
from headrace.model.topics import TopicPartition
from headrace.spark.client.cluster import EARLIEST, LATEST, READ_COMMITTED, BlockingCluster
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headrace.wire.messages.metadata import MetadataResponse

OF_THE_TOPIC = 1
"""The source of a setting that was given for the topic itself."""


def cluster_id(cluster: BlockingCluster) -> str:
    """The id of the cluster; empty if it reports none."""

    def attempt() -> str:
        with cluster.entry() as connection:
            return metadata_view(connection.request(metadata_request([]), MetadataResponse)).cluster_id or ""

    return cluster.retrying(attempt)


def topic_settings(cluster: BlockingCluster, topic: str, *, own_only: bool = True) -> dict[str, str]:
    """Settings by name: those set on the topic itself, or all that apply to it."""
    asked = DescribeConfigsResource(
        resource_type=int(ResourceType.TOPIC), resource_name=topic, configuration_keys=None
    )

    def attempt() -> dict[str, str]:
        with cluster.entry() as connection:
            request = DescribeConfigsRequest(resources=[asked], include_synonyms=False)
            (result,) = connection.request(request, DescribeConfigsResponse).results
        if result.error_code:
            raise kafka_error(result.error_code, f"the settings of topic {topic}: {result.error_message or ''}")
        return {
            one.name: one.value
            for one in result.configs
            if one.value is not None and (not own_only or one.config_source == OF_THE_TOPIC)
        }

    return cluster.retrying(attempt)


def committed_bounds(
    cluster: BlockingCluster, places: list[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Where each log begins, and where what is committed ends."""
    starts = cluster.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(places, LATEST), isolation=READ_COMMITTED)
    found: dict[TopicPartition, tuple[int, int]] = {}
    for place in places:
        start, end = starts[place], ends[place]
        assert start is not None
        assert end is not None
        found[place] = (start.offset, end.offset)
    return found

"""What a request names several times is answered once, or a small request could ask for any amount of memory."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.config_resources import ResourceType
from headrace.model.errors import ErrorCode
from headrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

TIMES = 50


async def test_partitions_whose_producers_are_described(bench: Any) -> None:
    await bench.create_topic("t", 2)
    topics = [
        TopicRequest(name="t", partition_indexes=[0, 1, 0]),
        TopicRequest(name="t", partition_indexes=[1, 7]),
    ]
    response = await bench.call(DescribeProducersRequest(topics=topics * TIMES), 0)
    (topic,) = response.topics
    assert [(found.partition_index, found.error_code) for found in topic.partitions] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.NONE),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize(
    ("request_", "version", "answers"),
    [
        (DescribeTransactionsRequest(transactional_ids=["a", "b"] * TIMES), 0, "transaction_states"),
        (DescribeGroupsRequest(groups=["a", "b"] * TIMES), 5, "groups"),
        (ConsumerGroupDescribeRequest(group_ids=["a", "b"] * TIMES), 1, "groups"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "api_key") else None,
)
async def test_names(bench: Any, request_: Any, version: int, answers: str) -> None:
    assert len(getattr(await bench.call(request_, version), answers)) == 2


async def test_resources_whose_settings_are_described(bench: Any) -> None:
    await bench.create_topic("t", 1)
    everything = DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name="t")
    one = DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name="t", configuration_keys=["retention.ms"]
    )
    response = await bench.call(DescribeConfigsRequest(resources=[everything, one] * TIMES), 4)
    whole, part = response.results
    assert len(whole.configs) > 1
    assert [config.name for config in part.configs] == ["retention.ms"]


async def test_groups_whose_offsets_are_fetched(bench: Any) -> None:
    named = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 0, 1] * TIMES)]
    groups = [
        OffsetFetchRequestGroup(group_id="a", topics=None),
        OffsetFetchRequestGroup(group_id="a", topics=named),
        OffsetFetchRequestGroup(group_id="b", topics=None),
    ]
    response = await bench.call(OffsetFetchRequest(groups=groups * TIMES), 8)
    assert [group.group_id for group in response.groups] == ["a", "a", "b"]


@pytest.mark.parametrize("times", [2, 1000])
async def test_partitions_whose_offsets_are_fetched(bench: Any, times: int) -> None:
    await bench.call(FindCoordinatorRequest(key="g"), 2)
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[1, 0] * times)]
    response = await bench.call(OffsetFetchRequest(group_id="g", topics=topics), 7)
    assert [found.partition_index for found in response.topics[0].partitions] == [1, 0]

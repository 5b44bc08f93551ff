"""What both clients ask, and which errors may pass."""

from __future__ import annotations

import pytest

from headrace.client.address import Address
from headrace.client.errors import CannotReach, ClientError, ConnectionLost, NoneReachable, Reason, RequestTimedOut
from headrace.client.requests import (
    EARLIEST,
    coordinator_found,
    coordinator_request,
    is_passing,
    metadata_request,
    metadata_view,
    offsets_found,
    offsets_request,
)
from headrace.client.view import BrokerView
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.messages.metadata import MetadataResponse

HERE, THERE = Address("here", 1), Address("there", 2)


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), False),
        (KafkaError(ErrorCode.INVALID_REQUEST), False),
        (ConnectionLost(THERE), True),
        (RequestTimedOut(HERE, "Fetch", 1), False),
        (CannotReach(HERE, Reason.REFUSED), True),
        (CannotReach(THERE, Reason.REFUSED), False),
        (NoneReachable([CannotReach(THERE, Reason.REFUSED), CannotReach(HERE, Reason.SILENT)]), True),
        (NoneReachable([CannotReach(THERE, Reason.REFUSED)]), False),
    ],
)
def test_what_may_pass(error: KafkaError | ClientError, passing: bool) -> None:
    assert is_passing(error, {HERE}.__contains__) is passing


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_in_both_shapes(version: int) -> None:
    request = coordinator_request(version, "g")
    assert (request.key, request.coordinator_keys) == (("g", []) if version < 4 else ("", ["g"]))
    found = Coordinator(key="g", node_id=7, host="here", port=1)
    one = FindCoordinatorResponse(node_id=7, host="here", port=1)
    many = FindCoordinatorResponse(coordinators=[found])
    assert coordinator_found(version, one if version < 4 else many) == BrokerView(7, HERE, None)


def test_errors_come_as_such() -> None:
    with pytest.raises(KafkaError, match="no metadata"):
        metadata_view(MetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaError, match="not now"):
        coordinator_found(3, FindCoordinatorResponse(error_code=15, error_message="not now"))
    topic = ListOffsetsTopicResponse(
        name="t",
        partitions=[ListOffsetsPartitionResponse(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    )
    with pytest.raises(KafkaError, match="partition t-1"):
        offsets_found(ListOffsetsResponse(topics=[topic]))


def test_requests_name_what_is_wanted() -> None:
    assert metadata_request(None).topics is None
    (named,) = metadata_request(["t"]).topics or []
    assert named.name == "t"
    request = offsets_request({TopicPartition("t", 1): EARLIEST, TopicPartition("t", 0): 5}, 1)
    (topic,) = request.topics
    assert [(one.partition_index, one.timestamp) for one in topic.partitions] == [(1, EARLIEST), (0, 5)]
    assert request.isolation_level == 1

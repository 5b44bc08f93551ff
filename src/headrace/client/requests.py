"""Requests that every client makes, and what their answers mean: without I/O, for clients that wait in any way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.client.address import Address
from headrace.client.errors import CannotReach, ClientError, ConnectionLost, NoneReachable, kafka_error
from headrace.client.view import BrokerView, ClusterView, view_of
from headrace.model.errors import RETRIABLE, ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

LATEST = -1
EARLIEST = -2
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
GROUP_COORDINATOR = 0
CONSUMER = -1
_MANY_KEYS_SINCE = 4


def metadata_request(names: Iterable[str] | None) -> MetadataRequest:
    """About the topics named, or all of them. Creates no topic."""
    asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=False)


def metadata_view(response: MetadataResponse) -> ClusterView:
    if response.error_code:
        raise kafka_error(response.error_code, "the broker gave no metadata")
    return view_of(response)


def coordinator_request(version: int, key: str, kind: int = GROUP_COORDINATOR) -> FindCoordinatorRequest:
    """Who coordinates a group or a transactional id."""
    if version >= _MANY_KEYS_SINCE:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    return FindCoordinatorRequest(key_type=kind, key=key)


def coordinator_found(version: int, response: FindCoordinatorResponse) -> BrokerView:
    found = response.coordinators[0] if version >= _MANY_KEYS_SINCE else response
    if found.error_code:
        raise kafka_error(found.error_code, found.error_message)
    return BrokerView(found.node_id, Address(found.host, found.port), None)


def offsets_request(times: Mapping[TopicPartition, int], isolation: int) -> ListOffsetsRequest:
    """For each partition the first offset at or after a time, or a landmark such as LATEST."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, time in times.items():
        asked = ListOffsetsPartition(partition_index=partition.partition, timestamp=time)
        topics.setdefault(partition.topic, []).append(asked)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
    )


class FoundOffset(NamedTuple):
    offset: int
    """-1 when no record is as late as the time asked for."""
    timestamp: int


def offsets_found(response: ListOffsetsResponse) -> dict[TopicPartition, FoundOffset]:
    """Raises the first error that a partition has."""
    found: dict[TopicPartition, FoundOffset] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                raise kafka_error(answer.error_code, f"partition {partition}")
            found[partition] = FoundOffset(answer.offset, answer.timestamp)
    return found


def is_passing(error: KafkaError | ClientError, may_return: Callable[[Address], bool]) -> bool:
    """Whether another attempt may go well. `may_return`: of a broker that could not be reached.

    A missing topic is final: waiting for somebody to create it is not what a caller expects.
    """
    if isinstance(error, KafkaError):
        return error.code in RETRIABLE and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if isinstance(error, NoneReachable):
        return any(may_return(failure.address) for failure in error.failures)
    if isinstance(error, CannotReach):
        return may_return(error.address)
    return isinstance(error, ConnectionLost)

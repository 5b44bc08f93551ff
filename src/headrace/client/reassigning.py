"""What an administrator asks about the places of partitions: moves, leaders, brokers that are gone for good."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.errors import Outcome, kafka_error
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from headrace.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

PREFERRED, UNCLEAN = 0, 1
T = TypeVar("T")


class MovingPartition(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def alter_reassignments(
    cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, Outcome]:
    """Begin moves to these replicas; None cancels the one that is under way."""
    topics = _by_topic(
        wanted,
        lambda one: ReassignablePartition(
            partition_index=one.partition, replicas=None if (to := wanted[one]) is None else list(to)
        ),
    )
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=_timeout_ms(cluster),
        topics=[ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )

    async def attempt() -> dict[TopicPartition, Outcome]:
        response = await (await cluster.controller()).request(request, AlterPartitionReassignmentsResponse)
        if response.error_code:
            raise kafka_error(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, row.partition_index): _outcome(row.error_code, row.error_message)
            for topic in response.responses
            for row in topic.partitions
        }

    return await cluster.retrying(attempt)


async def list_reassignments(cluster: Cluster) -> dict[TopicPartition, MovingPartition]:
    """The moves that are under way."""
    request = ListPartitionReassignmentsRequest(timeout_ms=_timeout_ms(cluster))

    async def attempt() -> dict[TopicPartition, MovingPartition]:
        response = await (await cluster.controller()).request(request, ListPartitionReassignmentsResponse)
        if response.error_code:
            raise kafka_error(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, row.partition_index): MovingPartition(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
            for topic in response.topics
            for row in topic.partitions
        }

    return await cluster.retrying(attempt)


async def elect_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, election: int = PREFERRED
) -> dict[TopicPartition, Outcome]:
    """Have these partitions (None: all that need it) led by their first replica, or by any that lives."""
    asked: list[TopicPartitions] | None = None
    if partitions is not None:
        topics = _by_topic(partitions, lambda one: one.partition)
        asked = [TopicPartitions(topic=name, partitions=rows) for name, rows in topics.items()]
    request = ElectLeadersRequest(election_type=election, topic_partitions=asked, timeout_ms=_timeout_ms(cluster))

    async def attempt() -> dict[TopicPartition, Outcome]:
        response = await (await cluster.controller()).request(request, ElectLeadersResponse)
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            raise kafka_error(response.error_code)
        return {
            TopicPartition(topic.topic, row.partition_id): _outcome(row.error_code, row.error_message)
            for topic in response.replica_election_results
            for row in topic.partition_result
        }

    return await cluster.retrying(attempt)


async def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Forget a broker that is stopped and will not come back."""
    request = UnregisterBrokerRequest(broker_id=broker_id)

    async def attempt() -> None:
        response = await (await cluster.controller()).request(request, UnregisterBrokerResponse)
        if response.error_code:
            raise kafka_error(response.error_code, response.error_message)

    await cluster.retrying(attempt)


def _by_topic(partitions: Iterable[TopicPartition], row: Callable[[TopicPartition], T]) -> dict[str, list[T]]:
    topics: dict[str, list[T]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(row(one))
    return topics


def _outcome(code: int, message: str | None) -> Outcome:
    return kafka_error(code, message) if code else None


def _timeout_ms(cluster: Cluster) -> int:
    return int(cluster.settings.request_timeout_s * 1000)

"""What an administrator asks about replica placement: moves, leaders, brokers that will not return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection
from headrace.client.errors import ClientError, Outcome, kafka_error
from headrace.client.view import ClusterView, TopicView
from headrace.model.errors import ErrorCode, KafkaError
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
    return await cluster.retrying(lambda: _moves_now(cluster))


async def moves_and_view(cluster: Cluster) -> tuple[dict[TopicPartition, MovingPartition], ClusterView]:
    """The moves that are under way, and the cluster after they were listed, both from the controller.

    Another broker may be behind it: of a move that has just ended it shows the replicas that come and those that
    go, and a plan would take them all for replicas that stay.
    """

    async def attempt() -> tuple[dict[TopicPartition, MovingPartition], ClusterView]:
        controller = await cluster.controller()
        moving = await _moves_now(cluster, controller)
        return moving, await cluster.metadata(of=controller)

    return await cluster.retrying(attempt)


async def _moves_now(
    cluster: Cluster, controller: ClientConnection | None = None
) -> dict[TopicPartition, MovingPartition]:
    request = ListPartitionReassignmentsRequest(timeout_ms=_timeout_ms(cluster))
    controller = controller or await cluster.controller()
    response = await controller.request(request, ListPartitionReassignmentsResponse)
    if response.error_code:
        raise kafka_error(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, row.partition_index): MovingPartition(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in response.topics
        for row in topic.partitions
    }


async def with_moves(cluster: Cluster, view: ClusterView) -> ClusterView:
    """The same topics, with what moves are adding to them, or as they are if that cannot be learned."""
    if not any(one.under_replicated for topic in view.topics.values() for one in topic.partitions):
        return view
    try:
        moving = await _moves_now(cluster)
        # Again, for a move that has ended in between would leave its new replicas as missing ones.
        now = await cluster.metadata() if moving else view
    except (ClientError, KafkaError):
        return view
    topics = {name: _with_adding(now.topics[name], moving) for name in view.topics if name in now.topics}
    return view._replace(topics=topics)


def _with_adding(topic: TopicView, moving: Mapping[TopicPartition, MovingPartition]) -> TopicView:
    def told(number: int, replicas: tuple[int, ...]) -> tuple[int, ...]:
        state = moving.get(TopicPartition(topic.name, number))
        return tuple(one for one in state.adding if one in replicas) if state is not None else ()

    partitions = tuple(one._replace(adding=told(one.number, one.replicas)) for one in topic.partitions)
    return topic._replace(partitions=partitions)


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

"""What an administrator asks about groups: list, describe, offsets read, set and deleted.

Each call about one group goes to its coordinator, and is tried again while that one loads or moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection
from headrace.client.errors import Outcome, kafka_error
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages import consumer_group_describe as consumer
from headrace.wire.messages import describe_groups as classic
from headrace.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

LAST_VERSION_BY_NAME = 9
"""From v10 on OffsetCommit and OffsetFetch name topics by id."""
MANY_GROUPS_SINCE = 8
STATES_SINCE = 4
TYPES_SINCE = 5
NO_OFFSET = -1
CLASSIC = "classic"
_NOT_A_CONSUMER_GROUP = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
_DEAD = "Dead"

T = TypeVar("T")
Described = classic.DescribedGroup | consumer.DescribedGroup


class GroupEntry(NamedTuple):
    id: str
    protocol_type: str
    state: str
    """Empty from a broker too old to say."""
    type: str


async def list_groups(cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupEntry]:
    """All groups by name, or those in one of the states and of one of the types."""
    view = await cluster.metadata([])

    async def ask(broker_id: int) -> list[GroupEntry]:
        return await cluster.retrying(partial(attempt, broker_id))

    async def attempt(broker_id: int) -> list[GroupEntry]:
        connection = await cluster.broker(broker_id)
        _check_filters(connection, states, types)
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        response = await connection.request(request, ListGroupsResponse)
        if response.error_code:
            raise kafka_error(response.error_code)
        return [
            GroupEntry(one.group_id, one.protocol_type, one.group_state, one.group_type or CLASSIC)
            for one in response.groups
        ]

    answers = await asyncio.gather(*(ask(broker_id) for broker_id in view.brokers))
    return sorted(group for answer in answers for group in answer)


def _check_filters(connection: ClientConnection, states: Sequence[str], types: Sequence[str]) -> None:
    version = connection.version_for(ListGroupsRequest)
    if (states and version < STATES_SINCE) or (types and version < TYPES_SINCE):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} cannot filter groups")


async def _at_coordinator(cluster: Cluster, group: str, ask: Callable[[ClientConnection], Awaitable[T]]) -> T:
    async def attempt() -> T:
        return await ask(await cluster.coordinator(group))

    return await cluster.retrying(attempt)


async def describe_group(cluster: Cluster, group: str) -> tuple[Described, ClientConnection]:
    """The group and its coordinator; GROUP_ID_NOT_FOUND if there is none, or one of another kind."""

    async def ask(connection: ClientConnection) -> tuple[Described, ClientConnection]:
        if consumer.ConsumerGroupDescribeRequest.api_key in connection.versions:
            found = await _describe_consumer(connection, group)
            if found is not None:
                return found, connection
        return await _describe_classic(connection, group), connection

    return await _at_coordinator(cluster, group, ask)


async def _describe_consumer(connection: ClientConnection, group: str) -> consumer.DescribedGroup | None:
    """None if it is not a group of the consumer protocol."""
    request = consumer.ConsumerGroupDescribeRequest(group_ids=[group])
    (found,) = (await connection.request(request, consumer.ConsumerGroupDescribeResponse)).groups
    if found.error_code in _NOT_A_CONSUMER_GROUP:
        return None
    if found.error_code:
        raise kafka_error(found.error_code, found.error_message)
    return found


async def _describe_classic(connection: ClientConnection, group: str) -> classic.DescribedGroup:
    request = classic.DescribeGroupsRequest(groups=[group])
    (found,) = (await connection.request(request, classic.DescribeGroupsResponse)).groups
    if found.error_code:
        raise kafka_error(found.error_code, found.error_message)
    if found.group_state == _DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")
    return found


async def fetch_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """Every committed position of a group; none for a group that does not exist."""

    async def ask(connection: ClientConnection) -> dict[TopicPartition, int]:
        request = OffsetFetchRequest(group_id=group, topics=None)
        if connection.version_for(OffsetFetchRequest) >= MANY_GROUPS_SINCE:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        response = await connection.request(request, OffsetFetchResponse, highest=LAST_VERSION_BY_NAME)
        if response.groups:
            return _offsets(response.groups[0].error_code, response.groups[0].topics)
        return _offsets(response.error_code, response.topics)

    return await _at_coordinator(cluster, group, ask)


def _offsets(
    error_code: int, topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]
) -> dict[TopicPartition, int]:
    if error_code and error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        raise kafka_error(error_code)
    found = {}
    for topic in topics:
        for one in topic.partitions:
            place = TopicPartition(topic.name, one.partition_index)
            if one.error_code:
                raise kafka_error(one.error_code, f"partition {place}")
            if one.committed_offset != NO_OFFSET:
                found[place] = one.committed_offset
    return dict(sorted(found.items()))


NOBODY = ("", -1)


async def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], member: tuple[str, int] = NOBODY
) -> dict[TopicPartition, Outcome]:
    """Set positions, as a member with its epoch, or from outside; the latter only while there are no members."""

    async def ask(connection: ClientConnection) -> dict[TopicPartition, Outcome]:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for place, offset in offsets.items():
            wanted = OffsetCommitRequestPartition(
                partition_index=place.partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(place.topic, []).append(wanted)
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member[0],
            generation_id_or_member_epoch=member[1],
            topics=[OffsetCommitRequestTopic(name=name, partitions=wanted) for name, wanted in topics.items()],
        )
        response = await connection.request(request, OffsetCommitResponse, highest=LAST_VERSION_BY_NAME)
        return _outcomes(
            (TopicPartition(topic.name, one.partition_index), one.error_code)
            for topic in response.topics
            for one in topic.partitions
        )

    return await _at_coordinator(cluster, group, ask)


async def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Outcome]:
    """Forget positions; refused for topics that members are subscribed to."""
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for place in partitions:
        topics.setdefault(place.topic, []).append(OffsetDeleteRequestPartition(partition_index=place.partition))

    async def ask(connection: ClientConnection) -> dict[TopicPartition, Outcome]:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[OffsetDeleteRequestTopic(name=name, partitions=wanted) for name, wanted in topics.items()],
        )
        response = await connection.request(request, OffsetDeleteResponse)
        if response.error_code:
            raise kafka_error(response.error_code)
        return _outcomes(
            (TopicPartition(topic.name, one.partition_index), one.error_code)
            for topic in response.topics
            for one in topic.partitions
        )

    return await _at_coordinator(cluster, group, ask)


async def delete_group(cluster: Cluster, group: str) -> Outcome:
    async def ask(connection: ClientConnection) -> None:
        request = DeleteGroupsRequest(groups_names=[group])
        (result,) = (await connection.request(request, DeleteGroupsResponse)).results
        if result.error_code:
            raise kafka_error(result.error_code)

    try:
        await _at_coordinator(cluster, group, ask)
    except KafkaError as error:
        return error
    return None


def _outcomes(answers: Iterable[tuple[TopicPartition, int]]) -> dict[TopicPartition, Outcome]:
    """What became of each; an error that passes is raised, so that all of it is tried again."""
    outcomes: dict[TopicPartition, Outcome] = {}
    for place, code in answers:
        error = kafka_error(code, f"partition {place}") if code else None
        if error is not None and error.code in _COORDINATOR_MOVED:
            raise error
        outcomes[place] = error
    return outcomes


_COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)

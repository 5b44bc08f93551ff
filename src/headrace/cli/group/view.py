"""A group as commands show it: both protocols in one shape, with where it is and how far behind.

Lag in seconds is the age of the oldest record that the group has not processed, by the record's own timestamp,
because every cluster shows that. (A Headrace broker measures it by its own clock too: `/lag` on its admin port.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.cli.common.errors import explain_kafka, nearest
from headrace.cli.common.failure import NOT_FOUND, CommandError
from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.groups import Described, describe_group, fetch_offsets, list_groups
from headrace.client.offsets import offset_ranges
from headrace.client.timestamps import record_timestamps
from headrace.client.view import NO_LEADER, ClusterView
from headrace.groups.embedded import CONSUMER_PROTOCOL_TYPE, read_assignment
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.model.topics import TopicPartition
from headrace.wire.messages import consumer_group_describe as consumer
from headrace.wire.messages import describe_groups as classic

EMPTY_STATES = frozenset({"Empty", "Dead"})
KNOWN_TYPES = frozenset({"classic", "consumer"})
"""Share and streams groups have other tools."""
GROUPS_AT_ONCE = 16
Ranges = Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class MemberView:
    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    subscription: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    id: str
    type: str
    state: str
    assignor: str
    coordinator_id: int | None
    coordinator: Address
    members: tuple[MemberView, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.state in EMPTY_STATES


@dataclass(frozen=True, slots=True)
class PositionView:
    """One partition that a group has read or is assigned to."""

    place: TopicPartition
    current_offset: int | None
    log_end_offset: int | None
    """None where the partition has no leader at the moment, or was deleted."""
    lag_seconds: float | None
    member: MemberView | None

    @property
    def lag(self) -> int | None:
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return max(self.log_end_offset - self.current_offset, 0)


@dataclass(frozen=True, slots=True)
class GroupWithLag:
    group: GroupView
    positions: tuple[PositionView, ...]

    @property
    def lag(self) -> int | None:
        """The sum over the partitions whose lag is known; None if there are none."""
        known = [position.lag for position in self.positions if position.lag is not None]
        return sum(known) if known else None

    @property
    def lag_seconds(self) -> float | None:
        """The lag of the partition that is furthest behind."""
        return max((one.lag_seconds for one in self.positions if one.lag_seconds is not None), default=None)

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(position.place.topic for position in self.positions))


async def group_of(cluster: Cluster, group_id: str) -> GroupView:
    """The group, or an error that names the most similar one that exists."""
    try:
        described, connection = await describe_group(cluster, group_id)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise explain_kafka(error, f"group {group_id}") from None
        raise missing_group(group_id, [one.id for one in await list_groups(cluster)]) from None
    view = await cluster.metadata([])
    coordinator_id = next((one.id for one in view.brokers.values() if one.address == connection.address), None)
    return _viewed(described, coordinator_id, connection.address)


def missing_group(group_id: str, known: Sequence[str]) -> CommandError:
    near = nearest(group_id, known)
    advice = f"Did you mean {near}?" if near is not None else "`headrace group list` shows the groups."
    return CommandError(f"There is no group {group_id}.", NOT_FOUND, advice)


def _viewed(described: Described, coordinator_id: int | None, address: Address) -> GroupView:
    if isinstance(described, consumer.DescribedGroup):
        return GroupView(
            described.group_id,
            "consumer",
            described.group_state,
            described.assignor_name,
            coordinator_id,
            address,
            tuple(_consumer_member(one) for one in described.members),
            described.group_epoch,
            described.assignment_epoch,
        )
    members = tuple(_classic_member(one, described.protocol_type) for one in described.members)
    return GroupView(
        described.group_id,
        "classic",
        described.group_state,
        described.protocol_data,
        coordinator_id,
        address,
        members,
    )


def _classic_member(member: classic.DescribedGroupMember, protocol_type: str) -> MemberView:
    partitions: Mapping[str, Collection[int]] = {}
    if protocol_type == CONSUMER_PROTOCOL_TYPE:
        try:
            partitions = read_assignment(member.member_assignment)
        except ProtocolError:
            pass  # a client with its own assignment format: what it reads is unknown
    assignment = tuple(sorted(TopicPartition(topic, one) for topic in partitions for one in partitions[topic]))
    return MemberView(member.member_id, member.group_instance_id, member.client_id, member.client_host, assignment)


def _consumer_member(member: consumer.Member) -> MemberView:
    return MemberView(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _places(member.assignment),
        member.member_epoch,
        _places(member.target_assignment),
        tuple(member.subscribed_topic_names),
        member.subscribed_topic_regex or None,
    )


def _places(assignment: consumer.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, one)
            for topic in assignment.topic_partitions
            for one in topic.partitions
        )
    )


async def all_lags(cluster: Cluster) -> list[GroupWithLag]:
    """The lag of every group; one that is deleted in the meantime is omitted."""
    return await lags_of(cluster, [one.id for one in await list_groups(cluster) if one.type in KNOWN_TYPES], True)


async def lags_of(cluster: Cluster, group_ids: Iterable[str], may_be_gone: bool = False) -> list[GroupWithLag]:
    """The groups and their offsets. End offsets and ages are requested once for all of them."""
    slots = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def ask(group_id: str) -> tuple[GroupView, dict[TopicPartition, int]] | None:
        async with slots:
            try:
                return await group_of(cluster, group_id), await fetch_offsets(cluster, group_id)
            except CommandError as error:
                if may_be_gone and error.code == NOT_FOUND:
                    return None
                raise

    answers = await asyncio.gather(*(ask(one) for one in dict.fromkeys(group_ids)))
    asked = [answer for answer in answers if answer is not None]
    places = {place for group, offsets in asked for place in _all_places(group, offsets)}
    ranges = await ranges_of(cluster, places)
    ages = await _ages(cluster, [offsets for _, offsets in asked], ranges)
    return [GroupWithLag(group, _positions(group, offsets, ranges, ages)) for group, offsets in asked]


def _all_places(group: GroupView, offsets: Iterable[TopicPartition]) -> set[TopicPartition]:
    return {*offsets, *(place for member in group.members for place in member.assignment)}


async def ranges_of(cluster: Cluster, places: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """(first offset, end offset) of each of the partitions that exists and has a leader."""
    if not places:
        return {}
    view = await cluster.metadata(sorted({place.topic for place in places}))
    led = [place for place in sorted(places) if _has_leader(view, place)]
    return await offset_ranges(cluster, led) if led else {}


def _has_leader(view: ClusterView, place: TopicPartition) -> bool:
    topic = view.topics.get(place.topic)
    return topic is not None and any(
        one.number == place.partition and one.leader != NO_LEADER for one in topic.partitions
    )


PlacedOffset = tuple[TopicPartition, int]


async def _ages(
    cluster: Cluster, groups: Sequence[Mapping[TopicPartition, int]], ranges: Ranges
) -> dict[PlacedOffset, float]:
    """The age in seconds of the first record that each group has not read; 0 for a group that has read all.

    Groups in the same partition are looked up one after the other: a Fetch can name a partition only once.
    """
    now_ms = cluster.env.clock.wall_ms()
    ages: dict[PlacedOffset, float] = {}
    rounds: list[dict[TopicPartition, int]] = []
    for place, offset in sorted({item for offsets in groups for item in offsets.items()}):
        if place not in ranges:
            continue
        if offset >= ranges[place][1]:
            ages[place, offset] = 0.0
            continue
        free = next((one for one in rounds if place not in one), None)
        if free is None:
            rounds.append(free := {})
        free[place] = offset
    for wanted in rounds:
        found = await record_timestamps(cluster, {one: max(wanted[one], ranges[one][0]) for one in wanted})
        for place, timestamp in found.items():
            ages[place, wanted[place]] = max(now_ms - timestamp, 0) / 1000
    return ages


def _positions(
    group: GroupView,
    offsets: Mapping[TopicPartition, int],
    ranges: Ranges,
    ages: Mapping[PlacedOffset, float],
) -> tuple[PositionView, ...]:
    owners = {place: member for member in group.members for place in member.assignment}
    positions = []
    for place in sorted(_all_places(group, offsets)):
        offset = offsets.get(place)
        end = ranges[place][1] if place in ranges else None
        seconds = None if offset is None else ages.get((place, offset))
        positions.append(PositionView(place, offset, end, seconds, owners.get(place)))
    return tuple(positions)


def position_row(group: GroupView, position: PositionView) -> dict[str, Any]:
    member = position.member
    return {
        "group": group.id,
        "topic": position.place.topic,
        "partition": position.place.partition,
        "current_offset": position.current_offset,
        "log_end_offset": position.log_end_offset,
        "lag": position.lag,
        "lag_seconds": position.lag_seconds,
        "consumer_id": member.id if member else None,
        "host": member.host if member else None,
        "client_id": member.client_id if member else None,
    }


def member_row(group: GroupView, member: MemberView) -> dict[str, Any]:
    return {
        "group": group.id,
        "consumer_id": member.id,
        "group_instance_id": member.instance_id,
        "host": member.host,
        "client_id": member.client_id,
        "partitions": len(member.assignment),
        "epoch": member.epoch,
        "assignment": by_topic(member.assignment),
        "target": None if member.target is None else by_topic(member.target),
        "subscription": member.pattern or list(member.subscription),
    }


def state_row(group: GroupView) -> dict[str, Any]:
    return {
        "group": group.id,
        "coordinator": f"{group.coordinator} ({group.coordinator_id})",
        "type": group.type,
        "assignment_strategy": group.assignor,
        "state": group.state,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": len(group.members),
    }


def by_topic(places: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]


def assignment_text(assignment: Sequence[Mapping[str, Any]] | None) -> str | None:
    """The assignment as Kafka's tool writes it: `topic:0,2;other:1`."""
    if not assignment:
        return None
    return ";".join(f"{one['topic']}:{','.join(map(str, one['partitions']))}" for one in assignment)

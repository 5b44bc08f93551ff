"""What describe and list show: read-only views of groups as plain values."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup
from headrace.groups.either import Group
from headrace.groups.embedded import CONSUMER_PROTOCOL_TYPE, by_topic_name
from headrace.groups.events import Assignment
from headrace.groups.settings import GroupSettings
from headrace.groups.states import GroupState
from headrace.groups.topics import TopicsView
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicId

_NOT_FOUND_SINCE = 6
"""DescribeGroups before this calls a missing group dead and says no more."""
CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"
CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    topic_id: TopicId
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribedConsumer:
    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assignment: tuple[DescribedTopic, ...]
    target: tuple[DescribedTopic, ...]
    member_type: int


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


def list_groups(
    groups: Iterable[Group], states: Collection[str] = (), types: Collection[str] = ()
) -> tuple[ListedGroup, ...]:
    """Filters ignore case; none means all, and an unknown state or type finds nothing."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {kind.strip().lower() for kind in types}
    listed = (_listed(group) for group in groups)
    return tuple(
        group
        for group in listed
        if (not wanted_states or group.state.lower() in wanted_states)
        and (not wanted_types or group.type in wanted_types)
    )


def _listed(group: Group) -> ListedGroup:
    if isinstance(group, ClassicGroup):
        return ListedGroup(group.id, group.protocol_type or "", group.state.value, CLASSIC_TYPE)
    return ListedGroup(group.id, CONSUMER_PROTOCOL_TYPE, group.state.value, CONSUMER_TYPE)


def describe_classic(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    if not isinstance(group, ClassicGroup):
        if version < _NOT_FOUND_SINCE:
            return DescribedGroup(group_id, state=GroupState.DEAD.value)
        what = "not found" if group is None else "is not a classic group"
        return DescribedGroup(
            group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.", GroupState.DEAD.value
        )
    stable = group.state is GroupState.STABLE
    members = tuple(
        DescribedMember(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.members.values()
    )
    protocol = (group.protocol or "") if stable else ""
    return DescribedGroup(
        group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=protocol,
        members=members,
    )


def describe_consumer(
    group_id: str, group: Group | None, settings: GroupSettings, topics: TopicsView
) -> DescribedConsumerGroup:
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        return DescribedConsumerGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    members = tuple(
        DescribedConsumer(
            member.id,
            member.instance_id,
            member.rack_id,
            member.epoch,
            member.client_id,
            member.client_host,
            tuple(sorted(member.topics)),
            member.regex,
            _described(member.assigned, topics),
            _described(group.target_of(member.id, member.instance_id), topics),
            CLASSIC_MEMBER if member.uses_classic else CONSUMER_MEMBER,
        )
        for member in group.members.values()
    )
    return DescribedConsumerGroup(
        group_id,
        state=group.state.value,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.preferred_assignor(settings.consumer_assignors[0]),
        members=members,
    )


def _described(assignment: Assignment, topics: TopicsView) -> tuple[DescribedTopic, ...]:
    names = by_topic_name(assignment, topics)
    return tuple(
        DescribedTopic(topics.by_name[name].id, name, tuple(sorted(partitions)))
        for name, partitions in sorted(names.items())
    )

"""A living group changes its protocol (KIP-848): up when a consumer member joins, down when the last one leaves.

Up: the classic members become members of a consumer group at the epoch of their generation, owning what they may
hold. They are told to rejoin and are served through JoinGroup, SyncGroup and Heartbeat from then on.
Down: what is left are classic members; they become a classic group in the generation of the group's epoch, which
starts a rebalance. Both are one batch of records, so a coordinator that takes over finds the one or the other.

What a member may hold is kept exactly in both directions (Kafka takes the last assignment up and the target down,
which lets two members read a partition when a rebalance was under way): up, its assignment and what it said it
owns; down, what the consumer group gave it and has not got back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.groups.classic import ClassicGroup, ClassicMember
from headrace.groups.classic_rebalance import arm_session, prepare_rebalance, release_all
from headrace.groups.consumer import ConsumerGroup, ConsumerMember
from headrace.groups.decision import Draft, TimerKind
from headrace.groups.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    by_topic_id,
    by_topic_name,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from headrace.groups.events import (
    Assignment,
    ClassicMetadata,
    ConsumerEpochStored,
    GroupDeleted,
    TargetEpochStored,
    TargetStored,
)
from headrace.groups.settings import GroupSettings
from headrace.groups.states import GroupState
from headrace.groups.topics import TopicsView
from headrace.groups.workspace import Workspace
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.model.topics import TopicId


def may_upgrade(group: ClassicGroup, settings: GroupSettings) -> bool:
    return (
        settings.migration_policy.may_upgrade
        and group.uses_consumer_protocol
        and len(group.members) <= settings.consumer_max_size
    )


def upgrade(group: ClassicGroup, draft: Draft) -> Workspace:
    """The consumer group that the classic one becomes, with its records in the draft."""
    try:
        members = _consumer_members(group, draft.topics)
    except ProtocolError as problem:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade the classic group {group.id}: {problem}."
        ) from None
    release_all(group, ErrorCode.REBALANCE_IN_PROGRESS, draft)
    draft.cancel(TimerKind.JOIN, group.id)
    draft.cancel(TimerKind.SYNC, group.id)
    draft.events.append(GroupDeleted(group.id))
    work = Workspace(ConsumerGroup(group.id), draft)
    for member in members:
        work.store_member(member)
    # One ahead of the members, so that each of them is told to rejoin.
    work.write(ConsumerEpochStored(group.id, group.generation + 1))
    for member in members:
        work.write(TargetStored(group.id, member.id, member.assigned))
    work.write(TargetEpochStored(group.id, group.generation))
    for member in members:
        work.write(member.stored_assignment(group.id))
        assert member.classic is not None
        draft.arm(TimerKind.SESSION, group.id, member.id, after_ms=member.classic.session_timeout_ms)
    return work


def _consumer_members(group: ClassicGroup, topics: TopicsView) -> list[ConsumerMember]:
    if not group.members:
        # All have left while it waited for more to come.
        return []
    protocol = group.protocol or group.select_protocol()
    subscriptions = {member.id: read_subscription(member.metadata(protocol)) for member in group.members.values()}
    held = _held(group, subscriptions, topics)
    return [
        _consumer_member(group, member, subscriptions[member.id], held[member.id])
        for member in group.members.values()
    ]


def _held(
    group: ClassicGroup, subscriptions: Mapping[str, Subscription], topics: TopicsView
) -> dict[str, dict[TopicId, frozenset[int]]]:
    """What each member was assigned, and what it owned when it joined and may not have given up (KIP-429).

    A leader can give a partition to two members, and a member can claim what it lost: only one keeps it. What was
    assigned goes before what is claimed, since a leader only assigns what nobody rightly claims.
    """
    taken: set[tuple[TopicId, int]] = set()
    held: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in group.members}
    for member in group.members.values():
        _take(held[member.id], by_topic_id(read_assignment(member.assignment), topics), taken)
    for member_id in sorted(subscriptions, key=lambda member_id: -subscriptions[member_id].generation):
        _take(held[member_id], by_topic_id(subscriptions[member_id].owned, topics), taken)
    return held


def _take(mine: dict[TopicId, frozenset[int]], wanted: Assignment, taken: set[tuple[TopicId, int]]) -> None:
    for topic_id, partitions in wanted.items():
        free = frozenset(partition for partition in partitions if (topic_id, partition) not in taken)
        taken.update((topic_id, partition) for partition in free)
        if free:
            mine[topic_id] = mine.get(topic_id, frozenset()) | free


def _consumer_member(
    group: ClassicGroup, member: ClassicMember, subscription: Subscription, held: Assignment
) -> ConsumerMember:
    return ConsumerMember(
        member.id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        assigned=held,
    )


def may_downgrade(group: ConsumerGroup, leaving: Collection[str], settings: GroupSettings) -> bool:
    """All that would be left are classic members."""
    left = [member for member in group.members.values() if member.id not in leaving]
    return (
        bool(left)
        and settings.migration_policy.may_downgrade
        and all(member.uses_classic for member in left)
        and len(left) <= settings.max_size
    )


def downgrade(work: Workspace, leaving: Collection[str], draft: Draft, *, rebalance: bool) -> ClassicGroup:
    """The classic group of those that stay. Without `rebalance` all of them must have reached the target."""
    group = work.group
    try:
        classic = _classic_group(group, leaving, draft)
    except ProtocolError as problem:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the consumer group {group.id}: {problem}."
        ) from None
    for member_id in group.members:
        work.cancel_timers(member_id)
    work.delete_group()
    # A coordinator that takes over before the rebalance ends must not find the members settled: in a generation
    # that none of them knows, all of them join again.
    stored = classic.stored()
    draft.events.append(replace(stored, generation=stored.generation + 1) if rebalance else stored)
    for member in classic.members.values():
        arm_session(classic, member, draft)
    return prepare_rebalance(classic, draft) if rebalance else classic


def _classic_group(group: ConsumerGroup, leaving: Collection[str], draft: Draft) -> ClassicGroup:
    staying = [_classic_member(member) for member in group.members.values() if member.id not in leaving]
    classic = ClassicGroup(
        group.id,
        state=GroupState.STABLE,
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        leader=staying[0].id,
        state_since_ms=draft.now_ms,
    ).with_all(staying)
    classic = replace(classic, protocol=classic.select_protocol())
    members = group.members
    return classic.with_all([_with_held(classic, member, members[member.id], draft.topics) for member in staying])


def _classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        member.classic.protocols,
    )


def _with_held(
    classic: ClassicGroup, member: ClassicMember, held: ConsumerMember, topics: TopicsView
) -> ClassicMember:
    version = read_version(member.metadata(classic.protocol))
    partitions = {
        topic_id: held.assigned.get(topic_id, frozenset()) | held.revoking.get(topic_id, frozenset())
        for topic_id in held.assigned.keys() | held.revoking.keys()
    }
    return replace(member, assignment=write_assignment(by_topic_name(partitions, topics), version))

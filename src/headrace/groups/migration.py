"""A living group changes its protocol (KIP-848): up when a consumer member joins, down when the last one leaves.

Up: the classic members become members of a consumer group at the epoch of their generation, owning what their
assignment says. They are told to rejoin and are served through JoinGroup, SyncGroup and Heartbeat from then on.
Down: what is left are classic members; they become a classic group in the generation of the group's epoch, which
starts a rebalance. Both are one batch of records, so a coordinator that takes over finds the one or the other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from headrace.groups.classic import ClassicGroup, ClassicMember
from headrace.groups.classic_rebalance import arm_session, prepare_rebalance, release_all
from headrace.groups.consumer import ConsumerGroup, ConsumerMember
from headrace.groups.decision import Draft, TimerKind
from headrace.groups.embedded import (
    CONSUMER_PROTOCOL_TYPE,
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
    work.write(ConsumerEpochStored(group.id, group.generation))
    for member in members:
        work.write(TargetStored(group.id, member.id, member.assigned))
    work.write(TargetEpochStored(group.id, group.generation))
    for member in members:
        work.write(member.stored_assignment(group.id))
        assert member.classic is not None
        draft.arm(TimerKind.SESSION, group.id, member.id, after_ms=member.classic.session_timeout_ms)
    return work


def _consumer_members(group: ClassicGroup, topics: TopicsView) -> list[ConsumerMember]:
    taken: set[tuple[TopicId, int]] = set()
    return [_consumer_member(group, member, topics, taken) for member in group.members.values()]


def _consumer_member(
    group: ClassicGroup, member: ClassicMember, topics: TopicsView, taken: set[tuple[TopicId, int]]
) -> ConsumerMember:
    subscription = read_subscription(member.metadata(group.protocol or group.select_protocol()))
    assigned = by_topic_id(read_assignment(member.assignment), topics)
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
        assigned=_not_taken(assigned, taken),
    )


def _not_taken(assigned: Assignment, taken: set[tuple[TopicId, int]]) -> Assignment:
    """A leader of the classic protocol may give a partition to two members; here only the first keeps it."""
    result = {}
    for topic_id, partitions in assigned.items():
        free = frozenset(partition for partition in partitions if (topic_id, partition) not in taken)
        taken.update((topic_id, partition) for partition in free)
        if free:
            result[topic_id] = free
    return result


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
    """The classic group of those that stay. `rebalance` is for when the target has to be shared out anew."""
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
    draft.events.append(classic.stored())
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
    return classic.with_all([_with_target(classic, member, group, draft.topics) for member in staying])


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


def _with_target(
    classic: ClassicGroup, member: ClassicMember, group: ConsumerGroup, topics: TopicsView
) -> ClassicMember:
    version = read_version(member.metadata(classic.protocol))
    target = group.target_of(member.id, member.instance_id)
    return replace(member, assignment=write_assignment(by_topic_name(target, topics), version))

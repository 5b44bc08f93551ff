"""Members of a consumer group that leave or are removed, and those of them that speak the classic protocol.

A classic member of a consumer group joins and syncs as usual, but never leads: the generation it sees is its
member epoch and its assignment is the one the coordinator computed. It is told to rejoin whenever it has a step to
make.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from headrace.groups.classic import ClassicGroup, rebalance_timeout_ms
from headrace.groups.consumer import ConsumerGroup, ConsumerMember
from headrace.groups.consumer_heartbeat import (
    advance,
    check_not_full,
    known_static,
    may_assign,
    replace_static,
)
from headrace.groups.decision import Draft, GroupTimer, TimerKind
from headrace.groups.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    by_topic_id,
    by_topic_name,
    read_subscription,
    read_version,
    write_assignment,
)
from headrace.groups.events import ClassicMetadata
from headrace.groups.messages import (
    UNKNOWN_MEMBER,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    Leaver,
    LeftMember,
    SyncGroup,
    SyncReply,
)
from headrace.groups.migration import downgrade, may_downgrade
from headrace.groups.states import ConsumerGroupState, MemberState
from headrace.groups.topics import TopicsView
from headrace.groups.workspace import Workspace
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError

_MEMBER_ID_REQUIRED_SINCE = 4


def fence_members(work: Workspace, member_ids: Collection[str], draft: Draft) -> ClassicGroup | None:
    """Remove members; returns the classic group that the group becomes if only classic members are left."""
    if may_downgrade(work.group, member_ids, draft.settings):
        return downgrade(work, member_ids, draft, rebalance=True)
    for member_id in member_ids:
        work.remove_member(member_id)
        work.cancel_timers(member_id)
    work.drop_unused_regexes()
    work.bump_epoch_if(forced=True)
    return None


def decide_timer(work: Workspace, timer: GroupTimer, draft: Draft) -> ClassicGroup | None:
    member = work.group.members.get(timer.member_id)
    if member is None or timer.kind in (TimerKind.JOIN, TimerKind.SYNC):
        return None
    if timer.kind is TimerKind.REVOKE and member.epoch != timer.stamp:
        return None
    return fence_members(work, [member.id], draft)


def decide_join(work: Workspace, request: JoinGroup, draft: Draft) -> tuple[JoinReply, ClassicGroup | None]:
    """The reply, and the classic group if the last consumer member is gone after this join."""
    member_id = request.member_id or draft.new_id()
    check_not_full(work.group, member_id, draft.settings)
    _check_protocols(work.group, request)
    is_dynamic = request.instance_id is None
    if request.member_id == UNKNOWN_MEMBER and is_dynamic and request.version >= _MEMBER_ID_REQUIRED_SINCE:
        return JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id), None
    subscription = _subscription(request)
    member = _joining_member(work, member_id, request, subscription)
    updated = replace(
        member,
        instance_id=member.instance_id if is_dynamic else request.instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        topics=frozenset(subscription.topics),
        regex=None,
        client_id=request.client.id,
        client_host=request.client.host,
        classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
    )
    owned = by_topic_id(subscription.owned, draft.topics)
    after = advance(work, updated, owned, draft, is_new_group=False)
    reply = JoinReply(
        member_id=after.id,
        generation=after.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=request.protocols[0].name,
    )
    if work.group.state is ConsumerGroupState.STABLE and may_downgrade(work.group, (), draft.settings):
        # No member speaks the consumer protocol any more, and as no change is under way no member has to rejoin.
        classic = downgrade(work, (), draft, rebalance=False)
        return replace(reply, protocol=classic.protocol), classic
    draft.cancel(TimerKind.MEMBER_JOIN, work.group.id, after.id)
    draft.arm(TimerKind.SESSION, work.group.id, after.id, after_ms=request.session_timeout_ms)
    draft.arm(TimerKind.MEMBER_SYNC, work.group.id, after.id, after_ms=updated.rebalance_timeout_ms)
    return reply, None


def _check_protocols(group: ConsumerGroup, request: JoinGroup) -> None:
    offered = {protocol.name for protocol in request.protocols}
    classics = [member.classic for member in group.members.values() if member.classic is not None]
    for classic in classics:
        offered &= {protocol.name for protocol in classic.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not offered:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _joining_member(
    work: Workspace, member_id: str, request: JoinGroup, subscription: Subscription
) -> ConsumerMember:
    if request.instance_id is None:
        if subscription.owned:
            # It was a member and was removed: it must be notified, so that it gives up its partitions.
            return work.group.member(member_id)
        return work.group.members.get(member_id, ConsumerMember(member_id))
    if request.member_id != UNKNOWN_MEMBER:
        return known_static(work.group, member_id, request.instance_id)
    static = work.group.static_member(request.instance_id)
    return ConsumerMember(member_id) if static is None else replace_static(work, static, member_id)


def _subscription(request: JoinGroup) -> Subscription:
    try:
        return read_subscription(request.protocols[0].metadata)
    except ProtocolError as problem:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(problem)) from None


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = known_static(group, member_id, instance_id)
    if not member.uses_classic:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member


def _in_generation(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = _classic_member(group, member_id, instance_id)
    assert member.classic is not None
    if member.epoch != generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def decide_sync(group: ConsumerGroup, request: SyncGroup, draft: Draft) -> SyncReply:
    member, classic = _in_generation(group, request.member_id, request.instance_id, request.generation)
    wrong_type = request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
    if wrong_type or request.protocol not in (None, classic.protocols[0].name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    behind = group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS
    # While the next assignment has to wait, joining again would lead nowhere.
    if behind and (group.assignment_epoch > member.epoch or may_assign(group, draft)):
        _await_join(group, member, draft)
        return SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
    draft.cancel(TimerKind.MEMBER_SYNC, group.id, member.id)
    draft.arm(TimerKind.SESSION, group.id, member.id, after_ms=classic.session_timeout_ms)
    assignment = _assignment_bytes(member, classic, draft.topics)
    return SyncReply(ErrorCode.NONE, request.protocol_type, request.protocol, assignment)


def _assignment_bytes(member: ConsumerMember, classic: ClassicMetadata, topics: TopicsView) -> bytes:
    version = read_version(classic.protocols[0].metadata)
    return write_assignment(by_topic_name(member.assigned, topics), version)


def _await_join(group: ConsumerGroup, member: ConsumerMember, draft: Draft) -> None:
    draft.arm_once(TimerKind.MEMBER_JOIN, group.id, member.id, after_ms=member.rebalance_timeout_ms)


def decide_heartbeat(group: ConsumerGroup, request: Heartbeat, draft: Draft) -> HeartbeatReply:
    member, classic = _in_generation(group, request.member_id, request.instance_id, request.generation)
    draft.arm(TimerKind.SESSION, group.id, member.id, after_ms=classic.session_timeout_ms)
    may_take = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS or may_take:
        _await_join(group, member, draft)
        return HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS)
    return HeartbeatReply()


def decide_leave(
    work: Workspace, leavers: Collection[Leaver], draft: Draft
) -> tuple[tuple[LeftMember, ...], ClassicGroup | None]:
    left: list[LeftMember] = []
    gone: dict[str, None] = {}
    for leaver in leavers:
        error = ErrorCode.NONE
        try:
            gone[_leaving_member(work.group, leaver).id] = None
        except KafkaError as problem:
            error = problem.code
        left.append(LeftMember(leaver.member_id, leaver.instance_id, error))
    classic = fence_members(work, list(gone), draft) if gone else None
    return tuple(left), classic


def _leaving_member(group: ConsumerGroup, leaver: Leaver) -> ConsumerMember:
    """The member that leaves, of either protocol: an administrator removes members regardless of it."""
    if leaver.instance_id is None:
        return group.member(leaver.member_id)
    static = group.static_member(leaver.instance_id)
    if leaver.member_id == UNKNOWN_MEMBER and static is not None:
        return static
    return known_static(group, leaver.member_id, leaver.instance_id)

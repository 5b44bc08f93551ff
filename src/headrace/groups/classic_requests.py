"""SyncGroup, Heartbeat, LeaveGroup and the timers of a classic group."""

from __future__ import annotations

from dataclasses import replace

from headrace.groups.classic import ClassicGroup
from headrace.groups.classic_rebalance import (
    arm_session,
    complete_if_all_joined,
    complete_join,
    join_deadline,
    prepare_rebalance,
    rebalance_or_complete,
    remove_member,
    store_assignment,
)
from headrace.groups.decision import Draft, GroupTimer, TimerKind
from headrace.groups.messages import (
    UNKNOWN_MEMBER,
    Heartbeat,
    HeartbeatReply,
    LeaveGroup,
    LeaveReply,
    LeftMember,
    SyncGroup,
    SyncReply,
    Token,
)
from headrace.groups.states import GroupState
from headrace.model.errors import ErrorCode, KafkaError


def decide_sync(group: ClassicGroup, request: SyncGroup, token: Token, draft: Draft) -> ClassicGroup:
    member = group.check_member(request.member_id, request.instance_id)
    if request.generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol, group.protocol):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        case GroupState.COMPLETING_REBALANCE:
            if member.syncing is not None and member.syncing != token:
                draft.reply(member.syncing, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
            group = _synced(group.with_member(replace(member, syncing=token)), member.id, draft)
            if member.id == group.leader:
                return store_assignment(group, dict(request.assignments), draft)
            return group
        case GroupState.STABLE:
            draft.reply(token, SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment))
            return _synced(group, member.id, draft)
        case _:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)


def _differs(asked: str | None, actual: str | None) -> bool:
    return asked is not None and actual is not None and asked != actual


def _synced(group: ClassicGroup, member_id: str, draft: Draft) -> ClassicGroup:
    if member_id not in group.pending_sync:
        return group
    left = group.pending_sync - {member_id}
    if not left:
        draft.cancel(TimerKind.SYNC, group.id)
    return replace(group, pending_sync=left)


def decide_heartbeat(group: ClassicGroup, request: Heartbeat, token: Token, draft: Draft) -> None:
    member = group.check_member(request.member_id, request.instance_id)
    if request.generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    rebalancing = group.state is GroupState.PREPARING_REBALANCE
    arm_session(group, member, draft)
    draft.reply(token, HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE))


def decide_leave(group: ClassicGroup, request: LeaveGroup, token: Token, draft: Draft) -> ClassicGroup:
    left = []
    for leaver in request.members:
        error = ErrorCode.NONE
        try:
            group = _leave_one(group, leaver.member_id, leaver.instance_id, draft)
        except KafkaError as problem:
            error = problem.code
        left.append(LeftMember(leaver.member_id, leaver.instance_id, error))
    draft.reply(token, LeaveReply(members=tuple(left)))
    if all(member.error is not ErrorCode.NONE for member in left):
        return group
    return _after_removal(group, draft)


def _leave_one(group: ClassicGroup, member_id: str, instance_id: str | None, draft: Draft) -> ClassicGroup:
    if member_id in group.pending:
        draft.cancel(TimerKind.SESSION, group.id, member_id)
        return group.without(member_id)
    if member_id == UNKNOWN_MEMBER:
        # An operator removes a static member by its instance id alone.
        member_id = group.static_id(instance_id) or UNKNOWN_MEMBER
    group.check_member(member_id, instance_id)
    return remove_member(group, member_id, draft)


def _after_removal(group: ClassicGroup, draft: Draft) -> ClassicGroup:
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        return rebalance_or_complete(group, draft)
    return complete_if_all_joined(group, draft)


def decide_timer(group: ClassicGroup, timer: GroupTimer, draft: Draft) -> ClassicGroup:
    match timer.kind:
        case TimerKind.SESSION:
            return _session_expired(group, timer.member_id, draft)
        case TimerKind.JOIN:
            return join_deadline(group, timer.stamp, draft)
        case TimerKind.SYNC:
            return _sync_expired(group, timer.stamp, draft)
        case _:
            return group


def _session_expired(group: ClassicGroup, member_id: str, draft: Draft) -> ClassicGroup:
    if member_id in group.pending:
        return _end_join_if_last(group.without(member_id), draft)
    member = group.members.get(member_id)
    if member is None:
        return group
    waits = member.joining is not None or member.syncing is not None
    if waits and not member.is_new:
        # It waits for us, so it cannot send heartbeats; its session starts again when it is answered.
        return group
    group = remove_member(group, member_id, draft)
    if group.state is GroupState.PREPARING_REBALANCE:
        return _end_join_if_last(group, draft)
    return _after_removal(group, draft)


def _end_join_if_last(group: ClassicGroup, draft: Draft) -> ClassicGroup:
    if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
        return complete_join(group, draft)
    return group


def _sync_expired(group: ClassicGroup, generation: int, draft: Draft) -> ClassicGroup:
    """Members that joined and never asked for their assignment hold it back from the others."""
    settled = group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
    if generation != group.generation or not settled or not group.pending_sync:
        return group
    for member_id in sorted(group.pending_sync & group.members.keys()):
        group = remove_member(group, member_id, draft)
    return prepare_rebalance(group, draft)

"""The rebalance of a classic group: it is prepared, members join, a generation begins, the leader assigns.

Every function takes a group and a draft and returns the group as it will be; replies to those who waited, records
and timers go into the draft. Only three moments are stored: a group that turned empty, the leader's assignment,
and a static member that came back to a stable group. Everything before the assignment may be lost: the group is
then found as it was in its last generation, and its members join again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.groups.classic import ClassicGroup, ClassicMember
from headrace.groups.decision import Draft, TimerKind
from headrace.groups.messages import UNKNOWN_MEMBER, JoinReply, SyncReply
from headrace.groups.states import NEXT, GroupState
from headrace.model.errors import ErrorCode

NO_LEADER = ""


def arm_session(group: ClassicGroup, member: ClassicMember, draft: Draft) -> None:
    draft.arm(TimerKind.SESSION, group.id, member.id, after_ms=member.session_timeout_ms)


def rebalance_or_complete(group: ClassicGroup, draft: Draft) -> ClassicGroup:
    """Someone came, went or changed: start a rebalance, or see if the one under way can end."""
    if GroupState.PREPARING_REBALANCE in NEXT[group.state]:
        return prepare_rebalance(group, draft)
    return complete_if_all_joined(group, draft)


def complete_if_all_joined(group: ClassicGroup, draft: Draft) -> ClassicGroup:
    if group.state is not GroupState.PREPARING_REBALANCE or group.initial or not group.all_joined:
        return group
    return complete_join(group, draft)


def prepare_rebalance(group: ClassicGroup, draft: Draft) -> ClassicGroup:
    if group.state is GroupState.COMPLETING_REBALANCE:
        group = release_syncs(
            group.with_all(_cleared(group.members.values())), ErrorCode.REBALANCE_IN_PROGRESS, draft
        )
    draft.cancel(TimerKind.SYNC, group.id)
    group = replace(group, pending_sync=frozenset()).moved(GroupState.PREPARING_REBALANCE, draft.now_ms)
    if group.initial:
        delay_ms = draft.settings.initial_rebalance_delay_ms
        left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        draft.arm(TimerKind.JOIN, group.id, after_ms=delay_ms, stamp=left_ms)
        return group
    if group.all_joined:
        return complete_join(group, draft)
    draft.arm(TimerKind.JOIN, group.id, after_ms=group.rebalance_timeout_ms)
    return group


def _cleared(members: Iterable[ClassicMember]) -> list[ClassicMember]:
    return [replace(member, assignment=b"") for member in members]


def join_deadline(group: ClassicGroup, left_ms: int, draft: Draft) -> ClassicGroup:
    """The JOIN timer: prolong the initial delay while members keep coming, else begin the generation."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return group
    if group.initial and group.member_added and left_ms > 0:
        delay_ms = min(draft.settings.initial_rebalance_delay_ms, left_ms)
        draft.arm(TimerKind.JOIN, group.id, after_ms=delay_ms, stamp=left_ms - delay_ms)
        return replace(group, member_added=False)
    return complete_join(group, draft)


def complete_join(group: ClassicGroup, draft: Draft) -> ClassicGroup:
    """Leave behind those who did not come (static members keep their place) and begin the next generation."""
    draft.cancel(TimerKind.JOIN, group.id)
    for member in list(group.members.values()):
        if member.joining is None and not member.is_static:
            group = group.without(member.id)
            draft.cancel(TimerKind.SESSION, group.id, member.id)
    leader = _joined_leader(group)
    if group.members and leader is None:
        # Only static members that have not come: wait for them until their sessions end.
        draft.arm(TimerKind.JOIN, group.id, after_ms=group.rebalance_timeout_ms)
        return group
    group = replace(
        group, leader=leader, generation=group.generation + 1, pending_sync=frozenset(), member_added=False
    )
    if not group.members:
        return _become_empty(group, draft)
    group = replace(group, protocol=group.select_protocol()).moved(GroupState.COMPLETING_REBALANCE, draft.now_ms)
    return _release_joins(group, draft)


def _joined_leader(group: ClassicGroup) -> str | None:
    """The leader, or the first who joined when the leader did not."""
    leader = group.members.get(group.leader or "")
    if leader is not None and leader.joining is not None:
        return leader.id
    return next((member.id for member in group.members.values() if member.joining is not None), None)


def _become_empty(group: ClassicGroup, draft: Draft) -> ClassicGroup:
    group = replace(group, protocol=None, leader=None).moved(GroupState.EMPTY, draft.now_ms)
    draft.events.append(group.stored())
    return group


def join_reply(group: ClassicGroup, member_id: str) -> JoinReply:
    return JoinReply(
        member_id=member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=group.joined_members() if member_id == group.leader else (),
    )


def _release_joins(group: ClassicGroup, draft: Draft) -> ClassicGroup:
    members = []
    for member in group.members.values():
        if member.joining is not None:
            draft.reply(member.joining, join_reply(group, member.id))
        arm_session(group, member, draft)
        members.append(replace(member, joining=None, is_new=False))
    draft.arm(TimerKind.SYNC, group.id, after_ms=group.rebalance_timeout_ms, stamp=group.generation)
    return replace(group.with_all(members), pending_sync=frozenset(group.members))


def release_syncs(group: ClassicGroup, error: ErrorCode, draft: Draft) -> ClassicGroup:
    """Answer all who wait for their assignment: with it, or with the error."""
    members = []
    for member in group.members.values():
        if member.syncing is not None:
            reply = SyncReply(error)
            if error is ErrorCode.NONE:
                reply = SyncReply(error, group.protocol_type, group.protocol, member.assignment)
            draft.reply(member.syncing, reply)
            arm_session(group, member, draft)
        members.append(replace(member, syncing=None))
    return group.with_all(members)


def store_assignment(group: ClassicGroup, assignments: Mapping[str, bytes], draft: Draft) -> ClassicGroup:
    """The leader has spoken: the generation is stored and becomes stable."""
    assigned = [replace(member, assignment=assignments.get(member.id, b"")) for member in group.members.values()]
    group = group.with_all(assigned).moved(GroupState.STABLE, draft.now_ms)
    draft.events.append(group.stored())
    return release_syncs(group, ErrorCode.NONE, draft)


def remove_member(group: ClassicGroup, member_id: str, draft: Draft) -> ClassicGroup:
    """Take a member out and answer what it waits for; the caller decides what that means for the group."""
    member = group.members[member_id]
    if member.joining is not None:
        draft.reply(member.joining, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER))
    if member.syncing is not None:
        draft.reply(member.syncing, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
    draft.cancel(TimerKind.SESSION, group.id, member_id)
    return group.without(member_id)


def release_all(group: ClassicGroup, error: ErrorCode, draft: Draft) -> None:
    """The group stops being a classic one: no member may be left waiting."""
    for member in group.members.values():
        if member.joining is not None:
            draft.reply(member.joining, JoinReply(error, member.id))
        if member.syncing is not None:
            draft.reply(member.syncing, SyncReply(error))

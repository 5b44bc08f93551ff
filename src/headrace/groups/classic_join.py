"""JoinGroup in a classic group: newcomers, members that rejoin, static members that come back under a new id."""

from __future__ import annotations

from dataclasses import replace

from headrace.groups.classic import ClassicGroup, ClassicMember, rebalance_timeout_ms
from headrace.groups.classic_rebalance import (
    NO_LEADER,
    arm_session,
    complete_if_all_joined,
    join_reply,
    prepare_rebalance,
    rebalance_or_complete,
)
from headrace.groups.decision import Draft, TimerKind
from headrace.groups.messages import UNKNOWN_MEMBER, JoinGroup, JoinReply, SyncReply, Token
from headrace.groups.states import GroupState
from headrace.model.errors import ErrorCode, KafkaError

_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9


def decide_join(group: ClassicGroup, request: JoinGroup, token: Token, draft: Draft) -> ClassicGroup:
    assert group.state is not GroupState.DEAD
    if not _accepts(group, request.member_id, draft):
        draft.reply(token, JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED))
        return group.without(request.member_id)
    names = [protocol.name for protocol in request.protocols]
    if not group.supports(request.protocol_type, names):
        draft.reply(token, JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        return group
    if request.member_id == UNKNOWN_MEMBER:
        return _join_new(group, request, token, draft)
    return _join_known(group, request, token, draft)


def _accepts(group: ClassicGroup, member_id: str, draft: Draft) -> bool:
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        # Those who have not rejoined yet may never do so: only the ones that wait count.
        return (member is not None and member.joining is not None) or group.waiting_count < draft.settings.max_size
    return group.is_empty or member is not None or len(group.members) < draft.settings.max_size


def _join_new(group: ClassicGroup, request: JoinGroup, token: Token, draft: Draft) -> ClassicGroup:
    name = request.client.id if request.instance_id is None else request.instance_id
    member_id = f"{name}-{draft.new_id()}"
    if request.instance_id is not None:
        existing = group.static_id(request.instance_id)
        if existing is not None:
            return _replace_static(group, existing, member_id, request, token, draft)
    elif request.version >= _MEMBER_ID_REQUIRED_SINCE:
        draft.arm(TimerKind.SESSION, group.id, member_id, after_ms=request.session_timeout_ms)
        draft.reply(token, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return replace(group, pending=group.pending | {member_id})
    return _add_member(group, member_id, request, token, draft)


def _add_member(
    group: ClassicGroup, member_id: str, request: JoinGroup, token: Token, draft: Draft
) -> ClassicGroup:
    member = ClassicMember(
        member_id,
        request.instance_id,
        request.client.id,
        request.client.host,
        rebalance_timeout_ms(request),
        request.session_timeout_ms,
        request.protocols,
        joining=token,
        is_new=True,
    )
    if not group.members:
        group = replace(group, protocol_type=request.protocol_type)
    if group.state is GroupState.PREPARING_REBALANCE and group.initial:
        group = replace(group, member_added=True)
    draft.arm(TimerKind.SESSION, group.id, member_id, after_ms=draft.settings.new_member_join_timeout_ms)
    return rebalance_or_complete(group.with_member(member), draft)


def _join_known(group: ClassicGroup, request: JoinGroup, token: Token, draft: Draft) -> ClassicGroup:
    if request.member_id in group.pending:
        if request.instance_id is not None:
            # Ids are handed out to dynamic members only, so this one is another's.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return _add_member(group, request.member_id, request, token, draft)
    member = group.check_member(request.member_id, request.instance_id)
    unchanged = member.protocols == request.protocols
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            return _rejoin(group, member, request, token, draft)
        case GroupState.COMPLETING_REBALANCE if unchanged:
            # The reply to its join got lost: tell it again.
            draft.reply(token, join_reply(group, member.id))
            return group
        case GroupState.STABLE if unchanged and member.id != group.leader:
            draft.reply(token, replace(join_reply(group, member.id), members=()))
            return group
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return _rejoin(group, member, request, token, draft)
        case _:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)


def _rejoin(
    group: ClassicGroup, member: ClassicMember, request: JoinGroup, token: Token, draft: Draft
) -> ClassicGroup:
    if member.joining is not None and member.joining != token:
        # The client gave its first request up and sent another: only the last one is answered with the result.
        draft.reply(member.joining, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, member.id))
    return rebalance_or_complete(group.with_member(member.rejoined(request, token)), draft)


def _replace_static(
    group: ClassicGroup, old_id: str, new_id: str, request: JoinGroup, token: Token, draft: Draft
) -> ClassicGroup:
    """A static member is back with a new id: fence the old one, and do not rebalance if nothing changed."""
    old_leader = group.leader
    group = _take_over(group, old_id, new_id, draft)
    member = group.members[new_id].rejoined(request, token)
    arm_session(group, member, draft)
    group = group.with_member(member)
    if group.state is GroupState.STABLE:
        if group.select_protocol() != group.protocol:
            return rebalance_or_complete(group, draft)
        return _keep_generation(group, member, old_leader, request, draft)
    if group.state is GroupState.COMPLETING_REBALANCE:
        return prepare_rebalance(group, draft)
    return complete_if_all_joined(group, draft)


def _take_over(group: ClassicGroup, old_id: str, new_id: str, draft: Draft) -> ClassicGroup:
    old = group.members[old_id]
    if old.joining is not None:
        draft.reply(old.joining, JoinReply(ErrorCode.FENCED_INSTANCE_ID, old_id, leader=NO_LEADER))
    if old.syncing is not None:
        draft.reply(old.syncing, SyncReply(ErrorCode.FENCED_INSTANCE_ID))
    draft.cancel(TimerKind.SESSION, group.id, old_id)
    renamed = replace(old, id=new_id, joining=None, syncing=None)
    members = [renamed if member.id == old_id else member for member in group.members.values()]
    leader = new_id if group.leader == old_id else group.leader
    return replace(group.with_all(members), leader=leader, pending_sync=group.pending_sync - {old_id})


def _keep_generation(
    group: ClassicGroup, member: ClassicMember, old_leader: str | None, request: JoinGroup, draft: Draft
) -> ClassicGroup:
    """Stored, because after a change of coordinator the new id must be the one that counts."""
    reply = join_reply(group, member.id)
    if request.version >= _SKIP_ASSIGNMENT_SINCE:
        reply = replace(reply, skip_assignment=member.id == group.leader)
    else:
        # An old client that learns it leads would assign again; the old id makes it keep what it had.
        reply = replace(reply, leader=old_leader, members=())
    draft.reply(member.joining, reply)
    group = group.with_member(replace(member, joining=None))
    draft.events.append(group.stored())
    return group

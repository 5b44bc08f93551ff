"""ConsumerGroupHeartbeat: a member joins, stays, changes its subscription, or leaves (KIP-848).

`advance` is the heart of the protocol and serves classic members of a consumer group too: store what changed about
the member, raise the group epoch if that or the topics require it, compute a target for a new epoch, and move this
member one step towards it.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.groups.assignors import ASSIGNORS, MemberSpec
from headrace.groups.consumer import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerGroup, ConsumerMember
from headrace.groups.decision import Draft, TimerKind
from headrace.groups.events import Assignment, RegexStored, TargetEpochStored, TargetStored
from headrace.groups.messages import NOT_SET, UNKNOWN_MEMBER, ConsumerHeartbeat, ConsumerHeartbeatReply
from headrace.groups.reconcile import reconcile
from headrace.groups.settings import GroupSettings
from headrace.groups.states import MEMBER_NEXT, MemberState
from headrace.groups.workspace import Workspace
from headrace.model.errors import ErrorCode, KafkaError

_CLIENT_CHOOSES_ID_SINCE = 1


def check_request(request: ConsumerHeartbeat, settings: GroupSettings) -> None:
    """What is wrong with the request whatever the group is: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    needs_id = request.version >= _CLIENT_CHOOSES_ID_SINCE or request.member_epoch != 0
    for name, value in (
        ("MemberId", request.member_id if needs_id else None),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch == 0:
        _check_first(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in settings.consumer_assignors:
        known = ", ".join(settings.consumer_assignors)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {known}.",
        )


def _check_first(request: ConsumerHeartbeat) -> None:
    problem = None
    if request.rebalance_timeout_ms == NOT_SET:
        problem = "RebalanceTimeoutMs must be provided in first request."
    elif request.owned is None or request.owned:
        problem = "TopicPartitions must be empty when (re-)joining."
    elif request.topics is None and request.regex is None:
        problem = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def decide_heartbeat(
    work: Workspace, request: ConsumerHeartbeat, draft: Draft, *, is_new_group: bool
) -> ConsumerHeartbeatReply:
    check_not_full(work.group, request.member_id, draft.settings)
    member = _known_or_new(work, request, draft)
    updated = _updated(member, request)
    after = advance(work, updated, request.owned, draft, is_new_group=is_new_group)
    draft.arm(TimerKind.SESSION, work.group.id, after.id, after_ms=draft.settings.consumer_session_timeout_ms)
    subscribes = request.topics is not None or request.regex is not None
    full = request.rebalance_timeout_ms != NOT_SET and subscribes and request.owned is not None
    tell = request.member_epoch == 0 or full or after.assigned != member.assigned
    return ConsumerHeartbeatReply(
        member_id=after.id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=draft.settings.consumer_heartbeat_interval_ms,
        assignment=after.assigned if tell else None,
    )


def _updated(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """A join says everything; later on, what is left out did not change."""
    if _says_nothing_new(member, request):
        return member
    if request.member_epoch == 0:
        # A static member may come back with another subscription than the one that its instance had.
        member = replace(member, rack_id=None, assignor=None, topics=frozenset(), regex=None)
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == NOT_SET else timeout_ms,
        assignor=member.assignor if request.assignor is None else request.assignor,
        topics=member.topics if request.topics is None else frozenset(request.topics),
        # An empty pattern ends the subscription by pattern.
        regex=member.regex if request.regex is None else request.regex or None,
        client_id=request.client.id,
        client_host=request.client.host,
        classic=None,
    )


def _says_nothing_new(member: ConsumerMember, request: ConsumerHeartbeat) -> bool:
    """Most heartbeats say only that the member is alive."""
    return (
        request.member_epoch != 0
        and member.classic is None
        and request.topics is None
        and request.regex is None
        and request.instance_id in (None, member.instance_id)
        and request.rack_id in (None, member.rack_id)
        and request.rebalance_timeout_ms in (NOT_SET, member.rebalance_timeout_ms)
        and request.assignor in (None, member.assignor)
        and request.client.id == member.client_id
        and request.client.host == member.client_host
    )


def check_not_full(group: ConsumerGroup, member_id: str, settings: GroupSettings) -> None:
    if len(group.members) >= settings.consumer_max_size and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {settings.consumer_max_size} members.",
        )


def _known_or_new(work: Workspace, request: ConsumerHeartbeat, draft: Draft) -> ConsumerMember:
    joins = request.member_epoch == 0
    member_id = request.member_id or draft.new_id()
    if request.instance_id is not None:
        static = work.group.static_member(request.instance_id)
        if joins and static is not None:
            if not static.uses_classic and static.epoch != LEAVE_STATIC_EPOCH:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {request.instance_id} cannot join the group"
                    f" because the instance id is owned by {static.id} member.",
                )
            return replace_static(work, static, member_id)
        if not joins:
            member = known_static(work.group, member_id, request.instance_id)
            _check_epoch(member, request)
            return member
    if joins and member_id not in work.group.members:
        return ConsumerMember(member_id)
    member = work.group.member(member_id)
    _check_epoch(member, request)
    return member


def known_static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.id}.",
        )
    return member


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    received = request.member_epoch
    if received == 0:
        return  # it was fenced, or did not hear of its join: it owns nothing now, and gets its partitions again
    # The reply that told the member of its last move may have got lost: it may come with the epoch before.
    lost_reply = received == member.previous_epoch and _is_subset(request.owned, member.assigned)
    if received > member.epoch or (received < member.epoch and not lost_reply):
        side = "greater" if received > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {side} member epoch ({received}) than the one known by the group"
            f" coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def _is_subset(owned: Assignment | None, assigned: Assignment) -> bool:
    if owned is None:
        return False
    return all(partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items())


def replace_static(work: Workspace, old: ConsumerMember, member_id: str) -> ConsumerMember:
    """Give the place, the target and the partitions of a static member to its new id."""
    target = work.group.target_of(old.id, old.instance_id)
    new = replace(old, id=member_id, epoch=0, previous_epoch=0)
    work.remove_member(old.id)
    work.cancel_timers(old.id)
    work.store_member(new)
    work.write(TargetStored(work.group.id, member_id, target))
    work.write(new.stored_assignment(work.group.id))
    return new


def advance(
    work: Workspace, updated: ConsumerMember, owned: Assignment | None, draft: Draft, *, is_new_group: bool
) -> ConsumerMember:
    """Store the member, raise the epoch, compute the target, reconcile; the member as it is then."""
    before = work.group.members.get(updated.id)
    if before != updated:
        work.store_member(updated)
    old_subscription = None if before is None else (before.topics, before.regex)
    changed = old_subscription != (updated.topics, updated.regex)
    if before is None and not updated.topics and updated.regex is None:
        # Someone who wants nothing changes nothing for the others.
        changed = False
    changed = _resolve_regexes(work, draft) or changed
    work.bump_epoch_if(forced=is_new_group or changed)
    if work.group.epoch > work.group.assignment_epoch and may_assign(work.group, draft):
        _update_target(work, draft)
    return _reconcile_one(work, updated, owned, draft)


def may_assign(group: ConsumerGroup, draft: Draft) -> bool:
    """Not more often than the interval says, so that a hundred joins make few assignments (KIP-1263).

    Until then members stay at the last target, or join with nothing; their next heartbeat takes them further.
    """
    return group.may_assign(draft.settings.consumer_assignment_interval_ms, draft.now_ms)


def _resolve_regexes(work: Workspace, draft: Draft) -> bool:
    """Bring the topics of all patterns up to date; whether one changed."""
    patterns = work.group.patterns
    if not patterns and not work.group.regexes:
        return False
    work.drop_unused_regexes()
    changed = False
    for pattern in sorted(patterns):
        topics = draft.topics.matching(pattern)
        known = work.group.regexes.get(pattern)
        if known is None or known.topics != topics:
            version = draft.topics.version
            work.write(RegexStored(work.group.id, pattern, tuple(sorted(topics)), version, draft.now_ms))
            changed = True
    return changed


def _update_target(work: Workspace, draft: Draft) -> None:
    group = work.group
    specs = {
        member.id: MemberSpec(
            draft.topics.ids_of(group.topics_of(member)), group.target.get(member.id, {}), member.instance_id
        )
        for member in group.members.values()
    }
    counts = {id: topic.partition_count for id, topic in draft.topics.by_id.items()}
    assign = ASSIGNORS[group.preferred_assignor(draft.settings.consumer_assignors[0])]
    for member_id, target in assign(specs, counts).items():
        if group.target.get(member_id) != target:
            work.write(TargetStored(group.id, member_id, target))
    work.write(TargetEpochStored(group.id, work.group.epoch, draft.now_ms))


def _reconcile_one(
    work: Workspace, member: ConsumerMember, owned: Assignment | None, draft: Draft
) -> ConsumerMember:
    group = work.group
    if member.reconciled_to(group.assignment_epoch):
        return member
    target = group.target_of(member.id, member.instance_id)
    after = reconcile(member, group.assignment_epoch, target, group.owners, owned)
    if after == member:
        return member
    assert after.state is member.state or after.state in MEMBER_NEXT[member.state]
    work.write(after.stored_assignment(group.id))
    if not after.uses_classic:
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            draft.arm(TimerKind.REVOKE, group.id, after.id, after_ms=after.rebalance_timeout_ms, stamp=after.epoch)
        else:
            draft.cancel(TimerKind.REVOKE, group.id, after.id)
    return after


def decide_static_leave(work: Workspace, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    """It will be back within its session: its partitions are kept for its instance id."""
    assert request.instance_id is not None
    member = known_static(work.group, request.member_id, request.instance_id)
    away = replace(member, epoch=LEAVE_STATIC_EPOCH, revoking={})
    work.write(away.stored_assignment(work.group.id))
    return ConsumerHeartbeatReply(member_id=member.id, member_epoch=LEAVE_STATIC_EPOCH)


def leaving_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
    assert request.member_epoch == LEAVE_EPOCH
    if request.instance_id is None:
        return group.member(request.member_id or UNKNOWN_MEMBER)
    return known_static(group, request.member_id, request.instance_id)

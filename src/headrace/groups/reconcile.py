"""How one member of a consumer group moves towards its target: it gives up first, then takes over what is free.

The member keeps its epoch until it has said that it gave up what the new target takes from it. Only then does it
get the epoch of the target, with those of its new partitions that nobody has any more; for the rest it waits.
So no partition is ever with two members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.groups.consumer import ConsumerMember
from headrace.groups.events import Assignment
from headrace.groups.states import MemberState
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId

Owners = Mapping[tuple[TopicId, int], str]
_NONE: frozenset[int] = frozenset()


def reconcile(
    member: ConsumerMember, target_epoch: int, target: Assignment, owners: Owners, owned: Assignment | None
) -> ConsumerMember:
    """The member after it told us what it owns (None: as before), or the member itself if nothing changes."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _next(member, member.epoch, target_epoch, target, owners, owned)
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, member.revoking):
                return member
            # What it gave up is gone whatever comes next, so a commit under the old epoch must be refused.
            return _next(member, member.epoch + 1, target_epoch, target, owners, owned)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(member, member.epoch, target_epoch, target, owners, owned)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The state of the member is unknown. It must abandon all its partitions and rejoin.",
                )
            return _next(member, target_epoch, target_epoch, target, owners, owned)


def _still_owns(owned: Assignment | None, revoking: Assignment) -> bool:
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoking.get(topic_id, _NONE)) for topic_id, partitions in owned.items())


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owners: Owners,
    owned: Assignment | None,
) -> ConsumerMember:
    kept: dict[TopicId, frozenset[int]] = {}
    revoking: dict[TopicId, frozenset[int]] = {}
    waiting = False
    taken: dict[TopicId, frozenset[int]] = {}
    for topic_id in target.keys() | member.assigned.keys():
        wanted = target.get(topic_id, _NONE)
        current = member.assigned.get(topic_id, _NONE)
        missing = wanted - current
        free = frozenset(partition for partition in missing if (topic_id, partition) not in owners)
        waiting = waiting or free != missing
        _put(kept, topic_id, current & wanted)
        _put(revoking, topic_id, current - wanted)
        _put(taken, topic_id, (current & wanted) | free)
    if revoking and _still_owns(owned, revoking):
        return replace(
            member.at_epoch(epoch), state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking
        )
    state = MemberState.UNRELEASED_PARTITIONS if waiting else MemberState.STABLE
    return replace(member.at_epoch(target_epoch), state=state, assigned=taken, revoking={})


def _put(assignment: dict[TopicId, frozenset[int]], topic_id: TopicId, partitions: frozenset[int]) -> None:
    if partitions:
        assignment[topic_id] = partitions

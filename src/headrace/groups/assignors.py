"""The server-side assignors of KIP-848: `uniform` and `range`. Pure functions of members and topics.

Both give every partition of every subscribed topic to exactly one member that subscribes to it.

`uniform` balances the number of partitions over all topics and moves as few as it can: when all members subscribe
to the same topics nobody has more than one partition more than another and a partition moves only if its owner is
above its share; when they do not, partitions move between subscribers of a topic until no such move would help.

`range` gives each subscriber of a topic a range of its partitions, in the order of instance ids and then member
ids, so partitions of the same number of topics of the same size meet in one member. It does not try to be sticky.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.groups.events import Assignment
from headrace.model.topics import TopicId

UNIFORM = "uniform"
RANGE = "range"
DEFAULT_ASSIGNORS = (UNIFORM, RANGE)

_MAX_BALANCE_ROUNDS = 16
"""A limit on balancing, which can circle for long with differing subscriptions; Kafka stops here too."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    topics: frozenset[TopicId]
    assigned: Assignment
    """Its current target assignment."""
    instance_id: str | None = None


Members: TypeAlias = Mapping[str, MemberSpec]
PartitionCounts: TypeAlias = Mapping[TopicId, int]
"""The number of partitions of every topic that some member subscribes to."""
GroupAssignment: TypeAlias = dict[str, Assignment]
_Slot: TypeAlias = tuple[TopicId, int]
_Owned: TypeAlias = dict[str, dict[_Slot, None]]
"""Ordered sets, so that a result depends on its input alone."""


def assign_range(members: Members, counts: PartitionCounts) -> GroupAssignment:
    result: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in members}
    order = sorted(members, key=lambda member_id: _range_key(member_id, members[member_id]))
    for topic_id in sorted(_subscribed(members)):
        subscribers = [member_id for member_id in order if topic_id in members[member_id].topics]
        share, extra = divmod(counts[topic_id], len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + share + (index < extra)
            if end > start:
                result[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(result)


def assign_uniform(members: Members, counts: PartitionCounts) -> GroupAssignment:
    if not members:
        return {}
    owned, free = _keep_owned(members, counts)
    first = next(iter(members.values())).topics
    if all(spec.topics == first for spec in members.values()):
        _share_evenly(owned, free)
    else:
        _assign_free(members, counts, owned, free)
        _balance(members, counts, owned)
    return {member_id: _grouped(owned[member_id]) for member_id in members}


ASSIGNORS: Mapping[str, Callable[[Members, PartitionCounts], GroupAssignment]] = {
    UNIFORM: assign_uniform,
    RANGE: assign_range,
}


def _range_key(member_id: str, spec: MemberSpec) -> tuple[bool, str, str]:
    return spec.instance_id is None, spec.instance_id or "", member_id


def _subscribed(members: Members) -> set[TopicId]:
    return {topic_id for spec in members.values() for topic_id in spec.topics}


def _grouped(slots: Mapping[_Slot, None]) -> Assignment:
    partitions: dict[TopicId, set[int]] = {}
    for topic_id, partition in slots:
        partitions.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items()}


def _keep_owned(members: Members, counts: PartitionCounts) -> tuple[_Owned, list[_Slot]]:
    """What each member has and may keep, and the partitions without an owner."""
    taken: set[_Slot] = set()
    owned: _Owned = {}
    for member_id in sorted(members):
        spec = members[member_id]
        mine: dict[_Slot, None] = {}
        for topic_id in sorted(spec.assigned.keys() & spec.topics):
            for partition in sorted(spec.assigned[topic_id]):
                slot = (topic_id, partition)
                if partition < counts[topic_id] and slot not in taken:
                    mine[slot] = None
        taken.update(mine)
        owned[member_id] = mine
    everything = (
        (topic_id, number) for topic_id in sorted(_subscribed(members)) for number in range(counts[topic_id])
    )
    return owned, [slot for slot in everything if slot not in taken]


def _share_evenly(owned: _Owned, free: list[_Slot]) -> None:
    """Balance when all subscribe to the same topics: cut those above their share, fill those below it."""
    total = len(free) + sum(map(len, owned.values()))
    share, extra = divmod(total, len(owned))
    # The larger shares go to the members that have most, since that moves least.
    by_size = sorted(owned, key=lambda member_id: (-len(owned[member_id]), member_id))
    quotas = {member_id: share + (index < extra) for index, member_id in enumerate(by_size)}
    for member_id in by_size:
        while len(owned[member_id]) > quotas[member_id]:
            slot, _ = owned[member_id].popitem()
            free.append(slot)
    remaining = iter(free)
    for member_id in by_size:
        for _ in range(quotas[member_id] - len(owned[member_id])):
            owned[member_id][next(remaining)] = None
    assert next(remaining, None) is None


def _subscribers(members: Members, topic_id: TopicId) -> list[str]:
    return sorted(member_id for member_id, spec in members.items() if topic_id in spec.topics)


def _topic_order(members: Members, counts: PartitionCounts) -> list[tuple[TopicId, list[str]]]:
    """Topics with their subscribers, most partitions for each subscriber first: they leave least choice."""
    topics = [(topic_id, _subscribers(members, topic_id)) for topic_id in _subscribed(members)]
    return sorted(topics, key=lambda item: (-counts[item[0]] / len(item[1]), len(item[1]), item[0]))


def _assign_free(members: Members, counts: PartitionCounts, owned: _Owned, free: list[_Slot]) -> None:
    free_by_topic: dict[TopicId, list[_Slot]] = {}
    for slot in free:
        free_by_topic.setdefault(slot[0], []).append(slot)
    for topic_id, subscribers in _topic_order(members, counts):
        for slot in free_by_topic.get(topic_id, ()):
            least = min(subscribers, key=lambda member_id: len(owned[member_id]))
            owned[least][slot] = None


def _balance(members: Members, counts: PartitionCounts, owned: _Owned) -> None:
    topics = [
        (topic_id, subscribers) for topic_id, subscribers in _topic_order(members, counts) if len(subscribers) > 1
    ]
    for _ in range(_MAX_BALANCE_ROUNDS):
        moved = [_balance_topic(topic_id, subscribers, owned) for topic_id, subscribers in topics]
        if not any(moved):
            return


def _balance_topic(topic_id: TopicId, subscribers: list[str], owned: _Owned) -> bool:
    """Move partitions of one topic from those with most to those with least while that helps."""
    mine = {member_id: [slot for slot in owned[member_id] if slot[0] == topic_id] for member_id in subscribers}
    moved = False
    while True:
        givers = [member_id for member_id in subscribers if mine[member_id]]
        if not givers:
            return moved
        most = max(givers, key=lambda member_id: len(owned[member_id]))
        least = min(subscribers, key=lambda member_id: len(owned[member_id]))
        if len(owned[most]) - len(owned[least]) <= 1:
            return moved
        slot = mine[most].pop()
        del owned[most][slot]
        owned[least][slot] = None
        mine[least].append(slot)
        moved = True

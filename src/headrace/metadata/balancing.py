"""Where partitions should be so that all brokers have as much to do, with few moves (R-OPS-8): pure.

    1. Replicas on brokers that are not in the list go to those that are.
    2. A partition whose replicas share a rack, or a host, while another has none of them, gets one there.
    3. Replicas move from the broker that has the most to the one that has the fewest, one by one, until no two
       differ by more than one, or no move is left that keeps replicas as spread over racks and hosts as they are.
    4. Preferred leaders, the first of each partition's replicas, are evened out by another order, which copies
       nothing.

Only partitions that change are in the result. The same input gives the same plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from headrace.model.topics import TopicPartition

Replicas = tuple[int, ...]
PartitionReplicas = Mapping[TopicPartition, Replicas]


class Location(NamedTuple):
    """Where a broker is: what can be lost with it."""

    rack: str | None
    host: str
    closed: bool = False
    """It keeps what it has, and gets nothing more (`cordons`)."""


def balance(brokers: Mapping[int, Location], assignment: PartitionReplicas) -> dict[TopicPartition, Replicas]:
    """The partitions that should be elsewhere, or have another order, with their new replicas."""
    plan = _Plan(brokers, assignment)
    plan.leave_the_others()
    plan.spread()
    plan.level_replicas()
    plan.level_leaders()
    return {name: now for name, now in plan.replicas.items() if now != assignment[name]}


def evacuate(
    brokers: Mapping[int, Location], assignment: PartitionReplicas, broker: int
) -> dict[TopicPartition, Replicas]:
    """The least that must change so that nothing is on a broker which is not in the list.

    Others that are not in it, because they are down, keep what they have: they may be back in a minute.
    """
    plan = _Plan(brokers, assignment)
    plan.leave_the_others(only=broker)
    return {name: now for name, now in plan.replicas.items() if now != assignment[name]}


def replace_lost(
    brokers: Mapping[int, Location], assignment: PartitionReplicas, lost: PartitionReplicas
) -> dict[TopicPartition, Replicas]:
    """The partitions that lost some replicas, with others in their place.

    A broker in `lost` may live, and have lost only some of what it held. Where nobody can take a replica it stays.
    """
    plan = _Plan(brokers, assignment)
    for name, gone in lost.items():
        plan.replace(name, gone)
    return {name: now for name, now in plan.replicas.items() if now != assignment[name]}


def resize(
    brokers: Mapping[int, Location], assignment: PartitionReplicas, factor: int
) -> dict[TopicPartition, Replicas]:
    """The same partitions with so many replicas each."""
    plan = _Plan(brokers, assignment)
    for name in assignment:
        plan.resize(name, factor)
    return {name: now for name, now in plan.replicas.items() if now != assignment[name]}


class _Plan:
    def __init__(self, brokers: Mapping[int, Location], assignment: PartitionReplicas) -> None:
        self._brokers = brokers
        self.replicas: dict[TopicPartition, Replicas] = dict(assignment)
        self._held: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in sorted(brokers)}
        self._leaders: Counter[int] = Counter()
        self._of_topic: Counter[tuple[int, str]] = Counter()
        for name, replicas in assignment.items():
            self._count(name, replicas, 1)

    def _count(self, name: TopicPartition, replicas: Replicas, by: int) -> None:
        self._leaders[replicas[0]] += by
        for broker in replicas:
            self._of_topic[broker, name.topic] += by
            if broker in self._held:
                if by > 0:
                    self._held[broker][name] = None
                else:
                    del self._held[broker][name]

    def _set(self, name: TopicPartition, replicas: Replicas) -> None:
        self._count(name, self.replicas[name], -1)
        self.replicas[name] = replicas
        self._count(name, replicas, 1)

    def _together(self, replicas: Replicas) -> tuple[int, int]:
        """How many replicas share a rack with another, and how many a host."""
        places = [self._brokers[broker] for broker in replicas if broker in self._brokers]
        racks, hosts = {place.rack for place in places}, {place.host for place in places}
        return len(places) - len(racks), len(places) - len(hosts)

    def _best(self, name: TopicPartition, kept: Replicas, without: Replicas = ()) -> int | None:
        """Who should hold one more replica of it; None if everybody does."""
        free = [
            broker
            for broker, place in self._brokers.items()
            if not place.closed and broker not in kept and broker not in without
        ]

        def cost(broker: int) -> tuple[int, int, int, int, int]:
            held, of_topic = len(self._held[broker]), self._of_topic[broker, name.topic]
            return *self._together((*kept, broker)), held, of_topic, broker

        return min(free, key=cost, default=None)

    def leave_the_others(self, only: int | None = None) -> None:
        for name, replicas in list(self.replicas.items()):
            now = replicas
            for broker in replicas:
                if broker in self._brokers or only not in (None, broker):
                    continue
                kept = tuple(one for one in now if one != broker)
                taker = self._best(name, tuple(one for one in kept if one in self._brokers))
                if taker is not None and taker not in kept:
                    now = tuple(taker if one == broker else one for one in now)
                elif any(one in self._brokers for one in kept):
                    now = kept
            if now != replicas:
                self._set(name, now)

    def replace(self, name: TopicPartition, gone: Replicas) -> None:
        for broker in gone:
            now = self.replicas[name]
            kept = tuple(one for one in now if one not in gone and one in self._brokers)
            taker = self._best(name, kept, without=gone)
            if taker is not None:
                self._set(name, tuple(taker if one == broker else one for one in now))

    def resize(self, name: TopicPartition, factor: int) -> None:
        replicas = self.replicas[name]
        while len(replicas) < factor and (added := self._best(name, replicas)) is not None:
            replicas = (*replicas, added)
        if len(replicas) > factor:
            replicas = self._fewer(replicas, factor)
        if replicas != self.replicas[name]:
            self._set(name, replicas)

    def _fewer(self, replicas: Replicas, factor: int) -> Replicas:
        """Without the dead, then without those whose loss keeps the rest spread; the first stays if it lives."""
        while len(replicas) > factor:
            dead = [one for one in replicas if one not in self._brokers]
            rest = [tuple(one for one in replicas if one != gone) for gone in (dead[-1:] or replicas[1:])]
            replicas = min(reversed(rest), key=self._together)
        return replicas

    def spread(self) -> None:
        for name, replicas in list(self.replicas.items()):
            for broker in reversed(replicas):
                kept = tuple(one for one in self.replicas[name] if one != broker)
                taker = self._best(name, kept)
                if taker is None:
                    break
                now = tuple(taker if one == broker else one for one in self.replicas[name])
                if self._together(now) < self._together(self.replicas[name]):
                    self._set(name, now)

    def level_replicas(self) -> None:
        while self._level_once():
            pass

    def _level_once(self) -> bool:
        by_load = sorted(self._held, key=lambda broker: (len(self._held[broker]), broker))
        for source in reversed(by_load):
            for taker in by_load:
                if len(self._held[source]) - len(self._held[taker]) <= 1:
                    break
                if self._brokers[taker].closed:
                    continue
                if (name := self._movable(source, taker)) is not None:
                    replicas = self.replicas[name]
                    self._set(name, tuple(taker if one == source else one for one in replicas))
                    return True
        return False

    def _movable(self, source: int, taker: int) -> TopicPartition | None:
        """A partition that may go: best of a topic of which the source has more, and which it does not lead."""
        best: tuple[tuple[int, int], TopicPartition] | None = None
        for name in self._held[source]:
            replicas = self.replicas[name]
            if taker in replicas:
                continue
            moved = tuple(taker if one == source else one for one in replicas)
            if self._together(moved) > self._together(replicas):
                continue
            topic = name.topic
            gain = self._of_topic[taker, topic] - self._of_topic[source, topic], int(replicas[0] == source)
            if best is None or (gain, name) < best:
                best = gain, name
        return best[1] if best is not None else None

    def level_leaders(self) -> None:
        while self._level_leader_once():
            pass

    def _level_leader_once(self) -> bool:
        for source in sorted(self._held, key=lambda broker: (-self._leaders[broker], broker)):
            for name in self._held[source]:
                replicas = self.replicas[name]
                if replicas[0] != source:
                    continue
                others = [one for one in replicas[1:] if one in self._brokers]
                taker = min(others, key=lambda broker: (self._leaders[broker], broker), default=None)
                if taker is not None and self._leaders[source] - self._leaders[taker] > 1:
                    self._set(name, (taker, *(one for one in replicas if one != taker)))
                    return True
        return False

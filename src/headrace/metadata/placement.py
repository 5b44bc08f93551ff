"""Which brokers hold a partition's replicas (R-REP-1): pure, and the same for the same input.

Each partition takes, one after the other, the broker that has
- for the leader (the first replica): the fewest leaders of this topic, then the fewest of all topics;
- for the others: the fewest replicas of this partition in its rack, then on its host, then the fewest replicas of
  this topic, then of all topics; among equals the next one after the leader, so that a broker's followers are
  spread as well.
The topic comes first so that a new, empty broker does not become the leader of all of a new topic.

Brokers that are stopped get replicas only where too few live, and never as the first: they fetch them when they
are back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.metadata.image import BrokerImage, PartitionImage
from headrace.model.errors import ErrorCode, KafkaError


@dataclass(slots=True)
class Load:
    """How many partitions each broker leads and holds."""

    leaders: Counter[int] = field(default_factory=Counter)
    replicas: Counter[int] = field(default_factory=Counter)

    @staticmethod
    def of(partitions: Iterable[PartitionImage]) -> Load:
        load = Load()
        for partition in partitions:
            load.add(partition.replicas)
        return load

    def add(self, replicas: Sequence[int]) -> None:
        self.leaders[replicas[0]] += 1
        self.replicas.update(replicas)


def place(
    brokers: Mapping[int, BrokerImage],
    count: int,
    replication_factor: int,
    topic: Load,
    cluster: Load,
    stopped: Collection[int] = (),
) -> list[tuple[int, ...]]:
    """Choose replicas for `count` more partitions of a topic, and add them to both loads."""
    if not brokers or replication_factor > len(brokers) + len(stopped):
        counted = f"alive, and not cordoned: {len(brokers)}" + (f"; stopped: {len(stopped)}" if stopped else "")
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas need at least as many brokers; {counted}.",
        )
    order = sorted(brokers)
    placed = []
    for _ in range(count):
        replicas = [min(order, key=lambda b: (topic.leaders[b], cluster.leaders[b], cluster.replicas[b], b))]
        while len(replicas) < min(replication_factor, len(brokers)):
            replicas.append(_next_follower(brokers, order, replicas, topic, cluster))
        by_load = sorted(stopped, key=lambda b: (topic.replicas[b], cluster.replicas[b], b))
        replicas += by_load[: replication_factor - len(replicas)]
        topic.add(replicas)
        cluster.add(replicas)
        placed.append(tuple(replicas))
    return placed


def add_replicas(
    brokers: Mapping[int, BrokerImage], replicas: Sequence[int], count: int, topic: Load, cluster: Load
) -> tuple[int, ...]:
    """The replicas of a partition and so many more, as far as there are brokers; adds those to both loads."""
    order = sorted(brokers)
    grown = list(replicas)
    while len(grown) < len(replicas) + count and any(broker_id not in grown for broker_id in order):
        added = _next_follower(brokers, order, grown, topic, cluster)
        topic.replicas[added] += 1
        cluster.replicas[added] += 1
        grown.append(added)
    return tuple(grown)


def _next_follower(
    brokers: Mapping[int, BrokerImage], order: list[int], replicas: list[int], topic: Load, cluster: Load
) -> int:
    holders = [brokers[replica] for replica in replicas if replica in brokers]
    racks = Counter(broker.rack for broker in holders)
    hosts = Counter(broker.host for broker in holders)
    start = order.index(replicas[0]) + 1 if replicas[0] in brokers else 0
    others = max(len(order) - 1, 1)
    # One further for each partition that this leader has of the topic: when it dies, the others share them.
    turn = topic.leaders[replicas[0]]

    def cost(position: int) -> tuple[int, int, int, int, int]:
        broker = brokers[order[position]]
        distance = ((position - start) % len(order) - turn) % others
        load = topic.replicas[broker.id], cluster.replicas[broker.id]
        return racks[broker.rack], hosts[broker.host], *load, distance

    free = (position for position in range(len(order)) if order[position] not in replicas)
    return order[min(free, key=cost)]

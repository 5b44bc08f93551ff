"""The metadata image as one client sees it: through the listener it came in on, with what is reachable there."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from headrace.handlers.context import Context
from headrace.metadata.image import NO_LEADER, BrokerImage, Endpoint, MetadataImage, PartitionImage
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicId, TopicPartition

# Kafka's numbers of ACL operations, as bits. Without ACLs everybody may do everything.
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = range(3, 10)
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(10, 13)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
CLUSTER_OPERATIONS = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)
NO_BROKER = -1
NOT_REQUESTED = -(1 << 31)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    error: ErrorCode
    leader: int
    offline_replicas: list[int]


class ListenerView:
    def __init__(
        self,
        image: MetadataImage,
        listener: str,
        own_id: int = NO_BROKER,
        own_offline: Container[TopicPartition] = frozenset(),
        doubted: Container[int] = frozenset(),
    ) -> None:
        """`own_offline` are the partitions of this broker whose data directory failed; `doubted` are leaders that
        seem to have died just now: a client that is sent to one again asks much later than one that hears of none.
        """
        self.image = image
        self._listener = listener
        self._own_id = own_id
        self._own_offline = own_offline
        self._doubted = doubted
        self._failed: dict[tuple[TopicId, int], list[int]] = {}
        """Partitions whose data directory failed on some brokers, as they told the cluster."""
        for broker in image.brokers.values():
            for held in broker.offline:
                self._failed.setdefault(held, []).append(broker.id)
        self._reachable = {
            broker.id: (broker, endpoint)
            for broker in image.brokers.values()
            if (endpoint := broker.endpoint(listener)) is not None
        }

    @classmethod
    def of(cls, ctx: Context) -> ListenerView:
        broker = ctx.broker
        return cls(
            broker.metadata.image,
            ctx.listener,
            broker.id,
            broker.replicas.offline,
            broker.replicas.doubted_leaders,
        )

    def brokers(self) -> list[tuple[BrokerImage, Endpoint]]:
        """The brokers that have this listener, by id."""
        return [self._reachable[broker_id] for broker_id in sorted(self._reachable)]

    def with_departed(self, departed: Iterable[BrokerImage]) -> list[tuple[BrokerImage, Endpoint]]:
        """The same, and brokers that left a moment ago."""
        left = ((broker, broker.endpoint(self._listener)) for broker in departed)
        named = [(broker, endpoint) for broker, endpoint in left if endpoint is not None]
        return sorted([*self._reachable.values(), *named], key=lambda found: found[0].id)

    @property
    def controller_for_clients(self) -> int:
        """Where clients take changes of the cluster. Every broker passes them on.

        So this one stands in for a controller that is being elected, or that it does not know the address of yet:
        librdkafka waits for a controller without asking again, for a minute.
        """
        return self.image.controller_id if self.is_reachable(self.image.controller_id) else self._own_id

    def is_reachable(self, broker_id: int) -> bool:
        return broker_id in self._reachable

    def partition(self, name: TopicPartition, partition: PartitionImage) -> PartitionStatus:
        offline = [replica for replica in partition.replicas if replica not in self.image.brokers]
        if self._failed:
            topic = self.image.topics[name.topic]
            failed = self._failed.get((topic.id, name.partition), ())
            offline += [id for id in failed if id in partition.replicas and id != self._own_id]
        if name in self._own_offline and self._own_id in partition.replicas:
            offline.append(self._own_id)
        if partition.leader == NO_LEADER or partition.leader in offline or partition.leader in self._doubted:
            return PartitionStatus(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)
        if not self.is_reachable(partition.leader):
            return PartitionStatus(ErrorCode.LISTENER_NOT_FOUND, NO_LEADER, offline)
        return PartitionStatus(ErrorCode.NONE, partition.leader, offline)

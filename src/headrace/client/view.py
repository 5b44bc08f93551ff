"""What a cluster looks like at one moment: the answer to Metadata, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.address import Address
from headrace.client.errors import kafka_error
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId, TopicPartition
from headrace.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER = -1


class BrokerView(NamedTuple):
    id: int
    address: Address
    rack: str | None


class PartitionView(NamedTuple):
    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    adding: tuple[int, ...] = ()
    """The replicas that a move is adding; Metadata does not report them (`reassigning.with_moves`)."""

    @property
    def factor(self) -> int:
        """How many replicas it should have in sync: while it moves, as many as before."""
        return len(self.replicas) - len(self.adding)

    @property
    def missing(self) -> tuple[int, ...]:
        """Replicas that should be in sync and are not."""
        expected = {*self.in_sync, *self.adding}
        return tuple(broker for broker in self.replicas if broker not in expected)

    @property
    def under_replicated(self) -> bool:
        """By Kafka's rule: a replica that a move adds is not counted as missing, but can replace one that is."""
        return len(self.in_sync) < self.factor


class TopicView(NamedTuple):
    name: str
    id: TopicId
    internal: bool
    partitions: tuple[PartitionView, ...]
    """The partitions in the order of their indexes."""

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


class ClusterView(NamedTuple):
    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerView]
    topics: Mapping[str, TopicView]
    errors: Mapping[str, int]
    """The error codes of topics that were requested and could not be returned."""

    def topic(self, name: str) -> TopicView:
        found = self.topics.get(name)
        if found is None:
            code = self.errors.get(name, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            raise kafka_error(code, f"topic {name}")
        return found

    def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition; a retriable error while there is none."""
        partitions = self.topic(partition.topic).partitions
        found = next((one for one in partitions if one.number == partition.partition), None)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition}")
        if found.leader == NO_LEADER or found.leader not in self.brokers:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader")
        return found.leader


def view_of(response: MetadataResponse) -> ClusterView:
    brokers = {
        broker.node_id: BrokerView(broker.node_id, Address(broker.host, broker.port), broker.rack)
        for broker in response.brokers
    }
    named = [(topic.name, topic) for topic in response.topics if topic.name is not None]
    return ClusterView(
        response.cluster_id,
        response.controller_id,
        dict(sorted(brokers.items())),
        {name: _topic(name, topic) for name, topic in sorted(named) if not topic.error_code},
        {name: topic.error_code for name, topic in named if topic.error_code},
    )


def _topic(name: str, topic: MetadataResponseTopic) -> TopicView:
    partitions = sorted(topic.partitions, key=lambda one: one.partition_index)
    return TopicView(
        name,
        topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionView(
                one.partition_index,
                one.leader_id,
                one.leader_epoch,
                tuple(one.replica_nodes),
                tuple(one.isr_nodes),
                tuple(one.offline_replicas),
            )
            for one in partitions
        ),
    )

"""The coordinators of a broker: one shard per partition of an internal topic that it leads, in one epoch.

A key (a group id, a transactional id) belongs to the partition that its hash names, and the broker that leads the
partition is its coordinator. The topic is made when somebody first asks for a coordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

from headrace.config.broker_config import BrokerConfig
from headrace.config.topic_settings import TOPIC_SETTINGS
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.image import MetadataImage, PartitionImage
from headrace.metadata.topic_decisions import TopicCreation, TopicOutcome
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.services.groups.hashing import partition_of

log = logging.getLogger(__name__)


class TopicCreator(Protocol):
    async def create_topics(self, topics: Sequence[TopicCreation]) -> list[TopicOutcome]: ...


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    RESIGNED = "resigned"

    @property
    def refusal(self) -> ErrorCode:
        """The error that a client gets from a shard that is not active."""
        loading = self is ShardState.LOADING
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR


class Shard(Protocol):
    """Lives as long as this broker leads its partition in one epoch."""

    partition: Partition
    leader_epoch: int

    @property
    def name(self) -> str: ...

    def start(self) -> None:
        """Start loading in the background."""

    def resign(self) -> None:
        """Stop being the coordinator: waiting clients are told to look for the new one."""


S = TypeVar("S", bound=Shard)


class Shards(Generic[S]):
    def __init__(
        self,
        topic: str,
        metadata: ClusterMetadata,
        creator: TopicCreator,
        replicas: ReplicaSet,
        make: Callable[[Partition], S],
    ) -> None:
        self._topic = topic
        self._topic_key = topic.encode()
        self._metadata = metadata
        self._creator = creator
        self._replicas = replicas
        self._make = make
        self._by_index: dict[int, S] = {}
        self._partition_count = 1
        """The number of partitions of the topic when the shards were last updated."""
        self._closed = False

    def follow(self, new: MetadataImage) -> bool:
        """Load and unload shards, as this broker's partitions agree with `new`. False once closed."""
        if self._closed:
            return False
        topic = new.topics.get(self._topic)
        self._partition_count = 1 if topic is None else len(topic.partitions)
        led = {
            index: partition
            for index, partition in self._replicas.by_name.get(self._topic_key, {}).items()
            if partition.is_leader
        }
        for index, shard in list(self._by_index.items()):
            current = led.get(index)
            if current is not shard.partition or current.leader_epoch != shard.leader_epoch:
                del self._by_index[index]
                log.info("No longer the coordinator on %s", shard.name)
                shard.resign()
        for index, partition in led.items():
            if index not in self._by_index:
                self._by_index[index] = self._make(partition)
                self._by_index[index].start()
        return True

    def close(self) -> None:
        """Stop with the broker: waiting clients are told to look for another coordinator."""
        self._closed = True
        for shard in self._by_index.values():
            shard.resign()
        self._by_index.clear()

    def __iter__(self) -> Iterator[S]:
        """The shards, as a copy: some may be added and removed meanwhile."""
        return iter(list(self._by_index.values()))

    def at(self, index: int) -> S | None:
        """The shard on a partition of the topic, if it is here."""
        return self._by_index.get(index)

    def find(self, key: str) -> S | None:
        """The shard of a key, if it is here."""
        return self._by_index.get(partition_of(key, self._partition_count))

    def of(self, key: str) -> S:
        """The shard of a key; NOT_COORDINATOR if another broker has it."""
        shard = self.find(key)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return shard

    def partition(self, key: str) -> PartitionImage | None:
        """The partition that coordinates a key; None while there is no topic."""
        topic = self._metadata.image.topics.get(self._topic)
        return None if topic is None else topic.partitions[partition_of(key, len(topic.partitions))]

    async def ensure_topic(self, creation: Callable[[], TopicCreation]) -> None:
        """Create the topic if it is missing. KafkaError if that is impossible now."""
        if self._topic in self._metadata.image.topics:
            return
        (outcome,) = await self._creator.create_topics([creation()])
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome
        await self._replicas.settled()


def segment_bytes(config: BrokerConfig, name: str) -> str:
    """A broker setting for the segments of an internal topic, raised to the minimum of `segment.bytes`."""
    least = TOPIC_SETTINGS["segment.bytes"].minimum
    return str(max(config.integer(name), int(least or 0)))

"""The cluster as a broker knows it: an immutable value, replaced whole when anything changes (D5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.model.topics import HIDDEN_TOPICS, TopicId, TopicPartition
from headrace.security.acl import Acl
from headrace.security.quota import QuotaTable
from headrace.security.scram import ScramCredential

NO_LEADER = -1
NO_CONTROLLER = -1


@dataclass(frozen=True, slots=True)
class Endpoint:
    listener: str
    host: str
    port: int
    security_protocol: str


@dataclass(frozen=True, slots=True)
class BrokerImage:
    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    suspect: bool = False
    """Whether it may have lost records: the controller has yet to remove it from the in-sync sets."""
    directories: tuple[str, ...] = ()
    """The ids of its data directories; only the broker itself knows them."""
    offline: frozenset[tuple[TopicId, int]] = frozenset()
    """Partitions whose data directory failed: the broker is alive, but cannot serve them."""
    min_in_sync: int | None = None
    """`min.insync.replicas` in its file; unknown for a broker of an older version."""
    lacking: frozenset[tuple[TopicId, int]] = frozenset()
    """For a suspect broker, the only partitions of which it may have lost records; empty means all."""
    suspicion_version: int = -1
    """The version of the node that marks it as suspect: a broker that restarts may have more to report by the time
    the node is deleted."""
    log_dirs: tuple[str, ...] = ()
    """Its data directories, as absolute paths."""
    format_level: int = 1
    """The highest level of the metadata's format that it reads (`format_level`)."""
    cordoned: tuple[str, ...] = ()
    """`cordoned.log.dirs` in its file."""

    @property
    def host(self) -> str:
        """The host it runs on, as far as its addresses show: replicas on one host are lost together."""
        return self.endpoints[0].host if self.endpoints else ""

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    replicas: tuple[int, ...]
    """Brokers that have or get a copy; the first should lead. During a move: the target, then the leaving ones."""
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int = 0
    """Grows with every change of this record; AlterPartition is fenced by it."""
    leader_incarnation: int = -1
    """The leader's broker epoch when it was elected: after a restart it must not continue in its old one."""
    target: tuple[int, ...] = ()
    """The replicas to which it moves (KIP-455); empty while it does not move."""
    original: tuple[int, ...] = ()
    """The replicas before it began to move, in that order; empty while it does not move."""
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966): no longer in sync, but nothing was committed since they were."""
    last_known_elr: tuple[int, ...] = ()
    """Replicas that were in one of the two sets while too few were in sync, and may have lost records since."""

    def __post_init__(self) -> None:
        assert set(self.isr) <= set(self.replicas)
        assert self.leader == NO_LEADER or self.leader in self.replicas
        if self.target or self.original:
            assert set(self.replicas) == {*self.target, *self.original}

    @property
    def adding(self) -> tuple[int, ...]:
        """The brokers that get a copy by the current move."""
        return tuple(replica for replica in self.target if replica not in self.original)

    @property
    def removing(self) -> tuple[int, ...]:
        """The brokers that give up their copy when the move is done."""
        return tuple(replica for replica in self.original if replica not in self.target)


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: TopicId
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    """The topic's own settings as text, only those that were set."""

    @property
    def internal(self) -> bool:
        return self.name in HIDDEN_TOPICS


@dataclass(frozen=True, slots=True)
class MetadataImage:
    cluster_id: str
    controller_id: int = NO_CONTROLLER
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic settings by broker id as text; "" holds those of every broker."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The settings of consumer groups by group id as text, only of those that have some."""
    acls: Mapping[str, Acl] = field(default_factory=dict)
    """The access rules, by their ids."""
    users: Mapping[str, Mapping[str, ScramCredential]] = field(default_factory=dict)
    """The SCRAM credentials of users, by mechanism."""
    quotas: QuotaTable = field(default_factory=dict)
    """The limits of users, client ids and addresses."""
    secret: bytes = field(default=b"", repr=False)
    """The cluster's secret, from which the salt of users that do not exist is made."""

    def partition(self, partition: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def with_partitions(self, changed: Mapping[str, Mapping[int, PartitionImage]]) -> MetadataImage:
        """This image with the new states of some partitions."""
        topics, by_id = dict(self.topics), dict(self.topics_by_id)
        for name, partitions in changed.items():
            topic = topics[name]
            merged = list(topic.partitions)
            for index, partition in partitions.items():
                merged[index] = partition
            topics[name] = by_id[topic.id] = replace(topic, partitions=tuple(merged))
        return replace(self, topics=topics, topics_by_id=by_id)

    def with_topics(self, changed: list[TopicImage], removed: list[str]) -> MetadataImage:
        """This image with some topics new or changed, and some removed."""
        topics, by_id = dict(self.topics), dict(self.topics_by_id)
        for name in [*removed, *(topic.name for topic in changed)]:
            old = topics.pop(name, None)
            if old is not None:
                del by_id[old.id]
        for topic in changed:
            topics[topic.name] = topic
            by_id[topic.id] = topic
        return replace(self, topics=topics, topics_by_id=by_id)

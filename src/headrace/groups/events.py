"""What can happen to a group. One class per record format of `__consumer_offsets`, plus what is only in memory.

A `StoredEvent` stands for one record: its key fields come first, then the fields of Kafka's value schema under our
names. A class whose name ends in `Deleted` is the tombstone of its key. `apply` of all records of a
log in order rebuilds the coordinator, so a record never says more or less live than it says at recovery.

A `Volatile` event is not stored: it carries what Kafka too forgets when a coordinator moves (who waits in a
rebalance), and a client finds its way back from its loss by joining again.

| class                       | key schema and version                    |
|-----------------------------|-------------------------------------------|
| OffsetCommitted / Deleted   | OffsetCommitKey 1                         |
| GroupStored / Deleted       | GroupMetadataKey 2                        |
| ConsumerEpochStored         | ConsumerGroupMetadataKey 3                |
| ConsumerPartitionsStored    | ConsumerGroupPartitionMetadataKey 4       |
| ConsumerMemberStored        | ConsumerGroupMemberMetadataKey 5          |
| TargetEpochStored           | ConsumerGroupTargetAssignmentMetadataKey 6|
| TargetStored                | ConsumerGroupTargetAssignmentMemberKey 7  |
| CurrentAssignmentStored     | ConsumerGroupCurrentMemberAssignmentKey 8 |
| RegexStored                 | ConsumerGroupRegularExpressionKey 16      |
| TransactionEnded            | the control record of a transaction       |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.model.topics import NO_TOPIC_ID, TopicId

if TYPE_CHECKING:
    from headrace.groups.classic import ClassicGroup

Assignment: TypeAlias = Mapping[TopicId, frozenset[int]]
"""Partitions by topic id; a topic without partitions is absent. Never changed once made."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1


class StoredEvent:
    """An event that is stored."""

    __slots__ = ()


class Volatile:
    """An event that lives in memory only."""

    __slots__ = ()


class OffsetCommitted(NamedTuple):
    """A committed offset. By far the most frequent event, hence a tuple; otherwise like a `StoredEvent`."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: TopicId = NO_TOPIC_ID
    producer_id: int = NO_PRODUCER_ID
    """The producer of the batch that holds the record: a transactional commit waits for its `TransactionEnded`."""


@dataclass(frozen=True, slots=True)
class OffsetDeleted(StoredEvent):
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionEnded(StoredEvent):
    """The control record a transaction coordinator writes; appended by the shell, never decided here."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupStored(StoredEvent):
    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
class GroupDeleted(StoredEvent):
    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerEpochStored(StoredEvent):
    group_id: str
    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerEpochDeleted(StoredEvent):
    group_id: str


@dataclass(frozen=True, slots=True)
class SubscribedTopic:
    topic_id: TopicId
    name: str
    partition_count: int
    racks: tuple[tuple[int, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerPartitionsStored(StoredEvent):
    """The partitions of a consumer group. Written before Kafka 4.1, which keeps a hash in the epoch record
    instead; still read."""

    group_id: str
    topics: tuple[SubscribedTopic, ...]


@dataclass(frozen=True, slots=True)
class ConsumerPartitionsDeleted(StoredEvent):
    group_id: str


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """One of the assignment protocols that a classic member offers, with its subscription."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What a consumer group remembers of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMemberStored(StoredEvent):
    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMetadata | None = None


@dataclass(frozen=True, slots=True)
class ConsumerMemberDeleted(StoredEvent):
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochStored(StoredEvent):
    group_id: str
    assignment_epoch: int
    timestamp_ms: int = 0
    """When it was computed (KIP-1263); 0 if that was not stored."""


@dataclass(frozen=True, slots=True)
class TargetEpochDeleted(StoredEvent):
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetStored(StoredEvent):
    group_id: str
    member_id: str
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class TargetDeleted(StoredEvent):
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentAssignmentStored(StoredEvent):
    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: int
    assigned: Assignment
    revoking: Assignment


@dataclass(frozen=True, slots=True)
class CurrentAssignmentDeleted(StoredEvent):
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RegexStored(StoredEvent):
    group_id: str
    regex: str
    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RegexDeleted(StoredEvent):
    group_id: str
    regex: str


@dataclass(frozen=True, slots=True)
class ClassicGroupChanged(Volatile):
    """The whole classic group as it is now, with those who wait."""

    group: ClassicGroup


ConsumerRecord: TypeAlias = (
    ConsumerEpochStored
    | ConsumerEpochDeleted
    | ConsumerPartitionsStored
    | ConsumerPartitionsDeleted
    | ConsumerMemberStored
    | ConsumerMemberDeleted
    | TargetEpochStored
    | TargetEpochDeleted
    | TargetStored
    | TargetDeleted
    | CurrentAssignmentStored
    | CurrentAssignmentDeleted
    | RegexStored
    | RegexDeleted
)
OffsetRecord: TypeAlias = OffsetCommitted | OffsetDeleted | TransactionEnded
Event: TypeAlias = ConsumerRecord | OffsetRecord | GroupStored | GroupDeleted | ClassicGroupChanged


def group_of(event: Event) -> str | None:
    """The group that an event is about; None for the end of a transaction, which may be about many."""
    match event:
        case TransactionEnded():
            return None
        case ClassicGroupChanged():
            return event.group.id
        case _:
            return event.group_id

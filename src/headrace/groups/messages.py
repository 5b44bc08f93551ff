"""Requests and replies of the coordinator as plain values, free of versions and of the wire.

Where the answer depends on the version of the request, the request carries `version`.
`Token` is whatever the caller wants back with the reply: it is kept and never looked into.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from headrace.groups.events import Assignment, ClassicProtocol
from headrace.model.errors import ErrorCode
from headrace.model.topics import NO_TOPIC_ID, TopicId, TopicPartition

Token: TypeAlias = object

UNKNOWN_MEMBER = ""
NO_GENERATION = -1
NO_OFFSET = -1
NOT_SET = -1


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Who sends: both are stored with the member and shown by describe."""

    id: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class JoinGroup:
    group_id: str
    member_id: str
    protocol_type: str
    protocols: tuple[ClassicProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """-1 (version 0) means the session timeout."""
    instance_id: str | None = None
    client: ClientIdentity = ClientIdentity()
    version: int = 9


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    error: ErrorCode = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroup:
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncReply:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class HeartbeatReply(NamedTuple):
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Leaver:
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    group_id: str
    members: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True)
class LeftMember:
    member_id: str
    instance_id: str | None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class LeaveReply:
    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat. None and -1 mean that the value did not change since the last one."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SET
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    client: ClientIdentity = ClientIdentity()
    version: int = 1


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatReply:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    topic_id: TopicId = NO_TOPIC_ID


class CommitOffsets(NamedTuple):
    """OffsetCommit, and TxnOffsetCommit when `producer_id` is set."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation: int = NO_GENERATION
    """Or the member epoch."""
    member_id: str = UNKNOWN_MEMBER
    instance_id: str | None = None
    retention_ms: int = NOT_SET
    """Versions 2 to 4 only."""
    producer_id: int = -1
    version: int = 9

    @property
    def transactional(self) -> bool:
        return self.producer_id >= 0


class CommitReply(NamedTuple):
    """One code per offset of the request, in its order."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    """None asks for every committed offset of the group."""
    member_id: str | None = None
    member_epoch: int = NOT_SET
    require_stable: bool = False


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchReply:
    error: ErrorCode
    offsets: tuple[FetchedOffset, ...]


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DeleteOffsetsReply:
    error: ErrorCode
    errors: tuple[ErrorCode, ...]
    """One per partition of the request, in its order; empty when `error` is set."""


@dataclass(frozen=True, slots=True)
class DeleteGroupReply:
    error: ErrorCode = ErrorCode.NONE


GroupReply: TypeAlias = (
    JoinReply
    | SyncReply
    | HeartbeatReply
    | LeaveReply
    | ConsumerHeartbeatReply
    | CommitReply
    | DeleteOffsetsReply
    | DeleteGroupReply
)

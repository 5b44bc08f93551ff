"""The records of __consumer_offsets.

A record's key begins with an int16 that says what kind of record it is, then the fields of that kind's key. Its
value begins with an int16 version, then the fields of that version; a null value deletes.

0 and 1 are positions (0 has an older expiry, never written any more), 2 a classic group, 3-8 and 16 the parts
of a KIP-848 group.
"""

from __future__ import annotations

from typing import ClassVar, Self

from headrace.model.errors import ProtocolError
from headrace.model.topics import TopicId
from headrace.wire.primitives import BYTES, INT8, INT16, INT32, INT64, STRING, UUID, Cursor
from headrace.wire.schema import NEVER, Message, Struct, array, field


class InternalRecord(Message):
    """A message that is led by two bytes: its kind if it is a key, else its version."""

    kind: ClassVar[int | None] = None
    """The kind of record a key stands for; None for values."""
    versions: ClassVar[range] = range(0)

    def __init_subclass__(
        cls, *, versions: range = range(0), kind: int | None = None, flexible: int = NEVER
    ) -> None:
        super().__init_subclass__()
        cls.versions, cls.kind, cls.flexible_since = versions, kind, flexible

    def to_bytes(self, version: int = 0) -> bytes:
        assert version in self.versions
        out = bytearray()
        INT16.write(out, version if self.kind is None else self.kind)
        self.encode_into(out, version)
        return bytes(out)

    @classmethod
    def from_bytes(cls, buffer: bytes | memoryview) -> Self:
        leading = leading_int16(buffer)
        if cls.kind is not None:
            if leading != cls.kind:
                raise ProtocolError(f"{cls.__name__} is kind {cls.kind}, not {leading}")
            return cls.decode(buffer, 0, 2)
        if leading not in cls.versions:
            raise ProtocolError(f"{cls.__name__} has no version {leading}")
        return cls.decode(buffer, leading, 2)


def leading_int16(buffer: bytes | memoryview) -> int:
    """The kind of a record's key, or the version of its value."""
    value: int = INT16.read(Cursor(buffer))
    return value


class OffsetCommitKey(InternalRecord, kind=1, versions=range(1)):
    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class OffsetCommitValue(InternalRecord, versions=range(5), flexible=4):
    offset: int = field(INT64)
    leader_epoch: int = field(INT32, since=3, default=-1)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, since=1, until=1, default=-1)
    topic_id: TopicId = field(UUID, since=4, tag=0)


class GroupMetadataKey(InternalRecord, kind=2, versions=range(1)):
    group: str = field(STRING)


class MemberMetadata(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable=0, default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, since=1, default=-1)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


class GroupMetadataValue(InternalRecord, versions=range(5), flexible=4):
    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable=0)
    leader: str | None = field(STRING, nullable=0)
    current_state_timestamp: int = field(INT64, since=2, default=-1)
    members: list[MemberMetadata] = field(array(MemberMetadata))


class ConsumerGroupMetadataKey(InternalRecord, kind=3, versions=range(1)):
    group_id: str = field(STRING)


class ConsumerGroupMetadataValue(InternalRecord, versions=range(1), flexible=0):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0)


class ConsumerGroupPartitionMetadataKey(InternalRecord, kind=4, versions=range(1)):
    group_id: str = field(STRING)


class PartitionMetadata(Struct):
    partition: int = field(INT32)
    racks: list[str] = field(array(STRING))


class TopicMetadata(Struct):
    topic_id: TopicId = field(UUID)
    topic_name: str = field(STRING)
    num_partitions: int = field(INT32)
    partition_metadata: list[PartitionMetadata] = field(array(PartitionMetadata))


class ConsumerGroupPartitionMetadataValue(InternalRecord, versions=range(1), flexible=0):
    topics: list[TopicMetadata] = field(array(TopicMetadata))


class ConsumerGroupMemberMetadataKey(InternalRecord, kind=5, versions=range(1)):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ClassicProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol))


class ConsumerGroupMemberMetadataValue(InternalRecord, versions=range(1), flexible=0):
    instance_id: str | None = field(STRING, nullable=0)
    rack_id: str | None = field(STRING, nullable=0)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable=0)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable=0)
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, nullable=0, tag=0, default=ClassicMemberMetadata()
    )
    """Kafka takes an absent one for an empty one, so that none has to be said."""


class ConsumerGroupTargetAssignmentMetadataKey(InternalRecord, kind=6, versions=range(1)):
    group_id: str = field(STRING)


class ConsumerGroupTargetAssignmentMetadataValue(InternalRecord, versions=range(1), flexible=0):
    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0)


class ConsumerGroupTargetAssignmentMemberKey(InternalRecord, kind=7, versions=range(1)):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class TopicIdPartitions(Struct):
    topic_id: TopicId = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupTargetAssignmentMemberValue(InternalRecord, versions=range(1), flexible=0):
    topic_partitions: list[TopicIdPartitions] = field(array(TopicIdPartitions))


class ConsumerGroupCurrentMemberAssignmentKey(InternalRecord, kind=8, versions=range(1)):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ConsumerGroupCurrentMemberAssignmentValue(InternalRecord, versions=range(1), flexible=0):
    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[TopicIdPartitions] = field(array(TopicIdPartitions))
    partitions_pending_revocation: list[TopicIdPartitions] = field(array(TopicIdPartitions))


class ConsumerGroupRegularExpressionKey(InternalRecord, kind=16, versions=range(1)):
    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


class ConsumerGroupRegularExpressionValue(InternalRecord, versions=range(1), flexible=0):
    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)

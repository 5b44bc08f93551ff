"""The events of groups as records of `__consumer_offsets`, in Kafka's own formats, and back.

Versions are those that Kafka 4.1 writes: positions 4 (1 with an expiry of their own), classic groups 3, the rest
0. All older ones are read. Positions, by far the most frequent, have a codec written by hand; the others use the
schemas of `headrace.wire.messages.group_records`.

A record of a kind that is not known (share groups and streams groups keep theirs here too) is left alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from headrace.groups.events import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Assignment,
    ClassicGroupChanged,
    ClassicMetadata,
    ClassicProtocol,
    ConsumerEpochDeleted,
    ConsumerEpochStored,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    ConsumerPartitionsDeleted,
    ConsumerPartitionsStored,
    CurrentAssignmentDeleted,
    CurrentAssignmentStored,
    Event,
    GroupDeleted,
    GroupStored,
    OffsetCommitted,
    OffsetDeleted,
    RegexDeleted,
    RegexStored,
    StoredMember,
    SubscribedTopic,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
    TransactionEnded,
)
from headrace.model.errors import ProtocolError
from headrace.model.topics import NO_TOPIC_ID, TopicId
from headrace.model.varint import write_uvarint
from headrace.records.batch import CONTROL, TRANSACTIONAL, parse_header
from headrace.records.reader import read_records
from headrace.wire.messages import group_records as schema
from headrace.wire.messages.group_records import leading_int16

GROUP_VALUE_VERSION = 3
EXPIRING_OFFSET_VERSION = 1
OFFSET_VERSION = 4
_OFFSET_KINDS = (0, 1)
_COMMIT_MARKER = 1

_OFFSET_HEAD = struct.Struct(">hqi")
_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_KEY_START = struct.Struct(">hh")
_TIMESTAMP = struct.Struct(">q")
_CONTROL_KEY = struct.Struct(">hh")
_NO_TAGS = b"\0"
_PLAIN_OFFSET = struct.Struct(">hqixqx")
"""An offset without metadata and tags, as nearly all of them are."""
_NEW_PLAIN_OFFSET = struct.Struct(">hqibqb")
"""The same with the marks around the timestamp."""
_PLAIN_SIZE = _PLAIN_OFFSET.size
_LENGTH_POSITION = _OFFSET_HEAD.size
_PLAIN_MARKS = b"\1\0"
"""The length of an empty string, and after the timestamp the count of no tags."""
_TOPIC_ID_TAG = b"\1\0\x10"

REMEMBERED_TOPICS = 4_096
"""How many topics of groups have a cached key: their offsets are written again and again."""

Pair = tuple[bytes, bytes | None]


def encode(event: Event) -> Pair:
    """The key and the value of the event's record."""
    if type(event) is OffsetCommitted:
        return _encode_position(event)
    return _ENCODERS[type(event)](event)


def decode(key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> Event | None:
    """The event of a record; None if its kind is not ours. ProtocolError if it cannot be read."""
    kind = leading_int16(key)
    if kind in _OFFSET_KINDS:
        return _decode_offset(key, value, producer_id)
    reader = _DECODERS.get(kind)
    return None if reader is None else reader(key, value)


def decode_batch(batch: memoryview) -> Iterator[Event]:
    """The events of a batch; those of a transaction have its producer id."""
    header = parse_header(batch)
    if header.attributes & CONTROL:
        yield from (_decode_marker(record.key, header.producer_id) for record in read_records(batch))
        return
    producer_id = header.producer_id if header.attributes & TRANSACTIONAL else NO_PRODUCER_ID
    for record in read_records(batch):
        if record.key is None:
            raise ProtocolError(f"the record at offset {record.offset} has no key")
        event = decode(record.key, record.value, producer_id)
        if event is not None:
            yield event


def _decode_marker(key: bytes | None, producer_id: int) -> Event:
    if key is None or len(key) < _CONTROL_KEY.size:
        raise ProtocolError("a control record has no type")
    _, kind = _CONTROL_KEY.unpack_from(key)
    return TransactionEnded(producer_id, kind == _COMMIT_MARKER)


# --- positions ---------------------------------------------------------------------------------------------------


def _offset_key(event: OffsetDeleted) -> bytes:
    return _key_of_topic(event.group_id, event.topic) + _PARTITION.pack(event.partition)


@lru_cache(REMEMBERED_TOPICS)
def _key_of_topic(group_id: str, topic_name: str) -> bytes:
    """The beginning of the keys of a group's offsets in one topic."""
    group, topic = group_id.encode(), topic_name.encode()
    return b"".join((_KEY_START.pack(1, len(group)), group, _LENGTH.pack(len(topic)), topic))


def _encode_position(event: OffsetCommitted) -> tuple[bytes, bytes]:
    # At once: the fields of a named tuple are slow to get one by one, and every commit comes here.
    group_id, topic, partition, offset, leader_epoch, metadata, timestamp_ms, expires_ms, topic_id, _ = event
    key = _key_of_topic(group_id, topic) + _PARTITION.pack(partition)
    if not metadata and expires_ms == NO_TIMESTAMP and topic_id == NO_TOPIC_ID:
        return key, _NEW_PLAIN_OFFSET.pack(OFFSET_VERSION, offset, leader_epoch, 1, timestamp_ms, 0)
    return key, _full_offset_value(event)


def _full_offset_value(event: OffsetCommitted) -> bytes:
    if event.expire_timestamp_ms != NO_TIMESTAMP:
        return schema.OffsetCommitValue(
            offset=event.offset,
            metadata=event.metadata,
            commit_timestamp=event.commit_timestamp_ms,
            expire_timestamp=event.expire_timestamp_ms,
        ).to_bytes(EXPIRING_OFFSET_VERSION)
    out = bytearray(_OFFSET_HEAD.pack(OFFSET_VERSION, event.offset, event.leader_epoch))
    metadata = event.metadata.encode()
    write_uvarint(out, len(metadata) + 1)
    out += metadata
    out += _TIMESTAMP.pack(event.commit_timestamp_ms)
    if event.topic_id == NO_TOPIC_ID:
        out += _NO_TAGS
    else:
        out += _TOPIC_ID_TAG
        out += event.topic_id
    return bytes(out)


def _decode_offset(key: bytes, value: bytes | None, producer_id: int) -> Event:
    group_id, topic, partition = _read_offset_key(key)
    if value is None:
        return OffsetDeleted(group_id, topic, partition)
    if len(value) == _PLAIN_SIZE and value[_LENGTH_POSITION :: _TIMESTAMP.size + 1] == _PLAIN_MARKS:
        version, offset, leader_epoch, timestamp_ms = _PLAIN_OFFSET.unpack_from(value)
        if version == OFFSET_VERSION:
            return OffsetCommitted(
                group_id,
                topic,
                partition,
                offset,
                leader_epoch,
                "",
                timestamp_ms,
                producer_id=producer_id,
            )
    stored = schema.OffsetCommitValue.from_bytes(value)
    return OffsetCommitted(
        group_id,
        topic,
        partition,
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        TopicId(stored.topic_id),
        producer_id,
    )


def _read_offset_key(key: bytes) -> tuple[str, str, int]:
    try:
        topic_at = _KEY_START.size + _LENGTH.unpack_from(key, 2)[0]
        partition_at = topic_at + 2 + _LENGTH.unpack_from(key, topic_at)[0]
        group_id = key[_KEY_START.size : topic_at].decode()
        topic = key[topic_at + 2 : partition_at].decode()
        return group_id, topic, _PARTITION.unpack_from(key, partition_at)[0]
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"the key of a position cannot be read: {error}") from error


# --- the others --------------------------------------------------------------------------------------------------


def _encode_group(event: GroupStored) -> Pair:
    members = [
        schema.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.subscription,
            assignment=member.assignment,
        )
        for member in event.members
    ]
    value = schema.GroupMetadataValue(
        protocol_type=event.protocol_type,
        generation=event.generation,
        protocol=event.protocol,
        leader=event.leader,
        current_state_timestamp=event.state_timestamp_ms,
        members=members,
    )
    return schema.GroupMetadataKey(group=event.group_id).to_bytes(), value.to_bytes(GROUP_VALUE_VERSION)


def _decode_group(key: bytes, value: bytes | None) -> Event:
    group_id = schema.GroupMetadataKey.from_bytes(key).group
    if value is None:
        return GroupDeleted(group_id)
    stored = schema.GroupMetadataValue.from_bytes(value)
    members = tuple(
        StoredMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout,
            member.session_timeout,
            member.subscription,
            member.assignment,
        )
        for member in stored.members
    )
    return GroupStored(
        group_id,
        stored.protocol_type,
        stored.generation,
        stored.protocol,
        stored.leader,
        stored.current_state_timestamp,
        members,
    )


def _encode_epoch(event: ConsumerEpochStored) -> Pair:
    value = schema.ConsumerGroupMetadataValue(epoch=event.epoch, metadata_hash=event.metadata_hash)
    return _group_key(schema.ConsumerGroupMetadataKey, event), value.to_bytes()


def _decode_epoch(key: bytes, value: bytes | None) -> Event:
    group_id = schema.ConsumerGroupMetadataKey.from_bytes(key).group_id
    if value is None:
        return ConsumerEpochDeleted(group_id)
    stored = schema.ConsumerGroupMetadataValue.from_bytes(value)
    return ConsumerEpochStored(group_id, stored.epoch, stored.metadata_hash)


def _encode_partitions(event: ConsumerPartitionsStored) -> Pair:
    topics = [
        schema.TopicMetadata(
            topic_id=topic.topic_id,
            topic_name=topic.name,
            num_partitions=topic.partition_count,
            partition_metadata=[
                schema.PartitionMetadata(partition=partition, racks=list(racks))
                for partition, racks in topic.racks
            ],
        )
        for topic in event.topics
    ]
    value = schema.ConsumerGroupPartitionMetadataValue(topics=topics)
    return _group_key(schema.ConsumerGroupPartitionMetadataKey, event), value.to_bytes()


def _decode_partitions(key: bytes, value: bytes | None) -> Event:
    group_id = schema.ConsumerGroupPartitionMetadataKey.from_bytes(key).group_id
    if value is None:
        return ConsumerPartitionsDeleted(group_id)
    stored = schema.ConsumerGroupPartitionMetadataValue.from_bytes(value)
    topics = tuple(
        SubscribedTopic(
            topic.topic_id,
            topic.topic_name,
            topic.num_partitions,
            tuple((one.partition, tuple(one.racks)) for one in topic.partition_metadata),
        )
        for topic in stored.topics
    )
    return ConsumerPartitionsStored(group_id, topics)


def _encode_member(event: ConsumerMemberStored) -> Pair:
    classic = None
    if event.classic is not None:
        protocols = [
            schema.ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
            for protocol in event.classic.protocols
        ]
        classic = schema.ClassicMemberMetadata(
            session_timeout_ms=event.classic.session_timeout_ms, supported_protocols=protocols
        )
    value = schema.ConsumerGroupMemberMetadataValue(
        instance_id=event.instance_id,
        rack_id=event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        subscribed_topic_names=list(event.topics),
        subscribed_topic_regex=event.regex,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        server_assignor=event.assignor,
        classic_member_metadata=classic,
    )
    return _member_key(schema.ConsumerGroupMemberMetadataKey, event), value.to_bytes()


def _decode_member(key: bytes, value: bytes | None) -> Event:
    at = schema.ConsumerGroupMemberMetadataKey.from_bytes(key)
    if value is None:
        return ConsumerMemberDeleted(at.group_id, at.member_id)
    stored = schema.ConsumerGroupMemberMetadataValue.from_bytes(value)
    classic = None
    if stored.classic_member_metadata is not None:
        offered = stored.classic_member_metadata.supported_protocols
        classic = ClassicMetadata(
            stored.classic_member_metadata.session_timeout_ms,
            tuple(ClassicProtocol(protocol.name, protocol.metadata) for protocol in offered),
        )
    return ConsumerMemberStored(
        at.group_id,
        at.member_id,
        stored.instance_id,
        stored.rack_id,
        stored.client_id,
        stored.client_host,
        tuple(stored.subscribed_topic_names),
        stored.subscribed_topic_regex,
        stored.rebalance_timeout_ms,
        stored.server_assignor,
        classic,
    )


def _encode_target_epoch(event: TargetEpochStored) -> Pair:
    value = schema.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=event.assignment_epoch, assignment_timestamp=event.timestamp_ms
    )
    return _group_key(schema.ConsumerGroupTargetAssignmentMetadataKey, event), value.to_bytes()


def _decode_target_epoch(key: bytes, value: bytes | None) -> Event:
    group_id = schema.ConsumerGroupTargetAssignmentMetadataKey.from_bytes(key).group_id
    if value is None:
        return TargetEpochDeleted(group_id)
    stored = schema.ConsumerGroupTargetAssignmentMetadataValue.from_bytes(value)
    return TargetEpochStored(group_id, stored.assignment_epoch, stored.assignment_timestamp)


def _encode_target(event: TargetStored) -> Pair:
    value = schema.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_listed(event.partitions))
    return _member_key(schema.ConsumerGroupTargetAssignmentMemberKey, event), value.to_bytes()


def _decode_target(key: bytes, value: bytes | None) -> Event:
    at = schema.ConsumerGroupTargetAssignmentMemberKey.from_bytes(key)
    if value is None:
        return TargetDeleted(at.group_id, at.member_id)
    stored = schema.ConsumerGroupTargetAssignmentMemberValue.from_bytes(value)
    return TargetStored(at.group_id, at.member_id, _assignment(stored.topic_partitions))


def _encode_current(event: CurrentAssignmentStored) -> Pair:
    value = schema.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=event.epoch,
        previous_member_epoch=event.previous_epoch,
        state=event.state,
        assigned_partitions=_listed(event.assigned),
        partitions_pending_revocation=_listed(event.revoking),
    )
    return _member_key(schema.ConsumerGroupCurrentMemberAssignmentKey, event), value.to_bytes()


def _decode_current(key: bytes, value: bytes | None) -> Event:
    at = schema.ConsumerGroupCurrentMemberAssignmentKey.from_bytes(key)
    if value is None:
        return CurrentAssignmentDeleted(at.group_id, at.member_id)
    stored = schema.ConsumerGroupCurrentMemberAssignmentValue.from_bytes(value)
    return CurrentAssignmentStored(
        at.group_id,
        at.member_id,
        stored.member_epoch,
        stored.previous_member_epoch,
        stored.state,
        _assignment(stored.assigned_partitions),
        _assignment(stored.partitions_pending_revocation),
    )


def _encode_regex(event: RegexStored) -> Pair:
    value = schema.ConsumerGroupRegularExpressionValue(
        topics=list(event.topics), version=event.version, timestamp=event.timestamp_ms
    )
    return _regex_key(event), value.to_bytes()


def _decode_regex(key: bytes, value: bytes | None) -> Event:
    at = schema.ConsumerGroupRegularExpressionKey.from_bytes(key)
    if value is None:
        return RegexDeleted(at.group_id, at.regular_expression)
    stored = schema.ConsumerGroupRegularExpressionValue.from_bytes(value)
    topics = tuple(stored.topics)
    return RegexStored(at.group_id, at.regular_expression, topics, stored.version, stored.timestamp)


def _group_key(key: type[schema.InternalRecord], event: Any) -> bytes:
    return key(group_id=event.group_id).to_bytes()


def _member_key(key: type[schema.InternalRecord], event: Any) -> bytes:
    return key(group_id=event.group_id, member_id=event.member_id).to_bytes()


def _regex_key(event: RegexStored | RegexDeleted) -> bytes:
    return schema.ConsumerGroupRegularExpressionKey(
        group_id=event.group_id, regular_expression=event.regex
    ).to_bytes()


def _listed(assignment: Assignment) -> list[schema.TopicIdPartitions]:
    return [
        schema.TopicIdPartitions(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in sorted(assignment.items())
    ]


def _assignment(listed: Iterable[schema.TopicIdPartitions]) -> Assignment:
    return {TopicId(topic.topic_id): frozenset(topic.partitions) for topic in listed if topic.partitions}


def _tombstone(key: Callable[[Any], bytes]) -> Callable[[Any], Pair]:
    return lambda event: (key(event), None)


def _of_group(key: type[schema.InternalRecord]) -> Callable[[Any], Pair]:
    return _tombstone(lambda event: _group_key(key, event))


def _of_member(key: type[schema.InternalRecord]) -> Callable[[Any], Pair]:
    return _tombstone(lambda event: _member_key(key, event))


_ENCODERS: dict[type[Any], Callable[[Any], Pair]] = {
    OffsetDeleted: _tombstone(_offset_key),
    GroupStored: _encode_group,
    GroupDeleted: _tombstone(lambda event: schema.GroupMetadataKey(group=event.group_id).to_bytes()),
    ConsumerEpochStored: _encode_epoch,
    ConsumerEpochDeleted: _of_group(schema.ConsumerGroupMetadataKey),
    ConsumerPartitionsStored: _encode_partitions,
    ConsumerPartitionsDeleted: _of_group(schema.ConsumerGroupPartitionMetadataKey),
    ConsumerMemberStored: _encode_member,
    ConsumerMemberDeleted: _of_member(schema.ConsumerGroupMemberMetadataKey),
    TargetEpochStored: _encode_target_epoch,
    TargetEpochDeleted: _of_group(schema.ConsumerGroupTargetAssignmentMetadataKey),
    TargetStored: _encode_target,
    TargetDeleted: _of_member(schema.ConsumerGroupTargetAssignmentMemberKey),
    CurrentAssignmentStored: _encode_current,
    CurrentAssignmentDeleted: _of_member(schema.ConsumerGroupCurrentMemberAssignmentKey),
    RegexStored: _encode_regex,
    RegexDeleted: _tombstone(_regex_key),
}
assert ClassicGroupChanged not in _ENCODERS, "what lives in memory only is never written"

_DECODERS: dict[int, Callable[[bytes, bytes | None], Event]] = {
    2: _decode_group,
    3: _decode_epoch,
    4: _decode_partitions,
    5: _decode_member,
    6: _decode_target_epoch,
    7: _decode_target,
    8: _decode_current,
    16: _decode_regex,
}

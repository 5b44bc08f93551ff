"""The records of __consumer_offsets and the members' embedded protocol, as bytes."""

from __future__ import annotations

import pytest

from headrace.model.errors import ProtocolError
from headrace.model.topics import TopicId
from headrace.wire.messages import group_records
from headrace.wire.messages.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    GroupMetadataKey,
    GroupMetadataValue,
    InternalRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    leading_int16,
)

RECORDS = [
    value
    for value in vars(group_records).values()
    if isinstance(value, type) and issubclass(value, InternalRecord) and value is not InternalRecord
]


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def test_offset_commit_key() -> None:
    raw = b"\0\1" + text("g") + text("topic") + b"\0\0\0\3"
    key = OffsetCommitKey(group="g", topic="topic", partition=3)
    assert key.to_bytes() == raw
    assert OffsetCommitKey.from_bytes(raw) == key
    with pytest.raises(ProtocolError, match="kind 2"):
        GroupMetadataKey.from_bytes(raw)


@pytest.mark.parametrize(
    ("version", "middle"),
    [
        (0, text("m") + (99).to_bytes(8, "big")),
        (1, text("m") + (99).to_bytes(8, "big") + (100).to_bytes(8, "big")),
        (3, (7).to_bytes(4, "big") + text("m") + (99).to_bytes(8, "big")),
        (4, (7).to_bytes(4, "big") + b"\2m" + (99).to_bytes(8, "big") + b"\1\0\x10" + b"i" * 16),
    ],
)
def test_offset_commit_value(version: int, middle: bytes) -> None:
    value = OffsetCommitValue(
        offset=5,
        leader_epoch=7,
        metadata="m",
        commit_timestamp=99,
        expire_timestamp=100,
        topic_id=TopicId(b"i" * 16),
    )
    raw = version.to_bytes(2, "big") + (5).to_bytes(8, "big") + middle
    assert value.to_bytes(version) == raw
    assert OffsetCommitValue.from_bytes(raw).to_bytes(version) == raw


def test_group_metadata_value_v3() -> None:
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=10, rebalance_timeout=20, subscription=b"s"
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=2, leader="m", protocol=None, members=[member])
    raw = b"\0\3" + text("consumer") + b"\0\0\0\2" + b"\xff\xff" + text("m") + b"\xff" * 8 + b"\0\0\0\1"
    raw += text("m") + b"\xff\xff" + text("c") + text("/h") + b"\0\0\0\x14\0\0\0\x0a" + b"\0\0\0\1s" + b"\0\0\0\0"
    assert value.to_bytes(3) == raw
    assert GroupMetadataValue.from_bytes(raw) == value


def test_a_classic_member_inside_a_new_group_is_a_nullable_tagged_structure() -> None:
    classic = ClassicMemberMetadata(
        session_timeout_ms=9, supported_protocols=[ClassicProtocol(name="r", metadata=b"x")]
    )
    for held in (None, classic):
        value = ConsumerGroupMemberMetadataValue(client_id="c", client_host="h", classic_member_metadata=held)
        assert ConsumerGroupMemberMetadataValue.from_bytes(value.to_bytes()) == value
    assert value.to_bytes().endswith(b"\1\0\x0c\1\0\0\0\x09\2\2r\2x\0\0")


def test_group_epoch_with_and_without_its_hash() -> None:
    assert ConsumerGroupMetadataValue(epoch=1).to_bytes() == b"\0\0\0\0\0\1\0"
    assert ConsumerGroupMetadataValue(epoch=1, metadata_hash=2).to_bytes().endswith(b"\1\0\x08" + bytes(7) + b"\2")


def test_kinds_are_those_of_kafka() -> None:
    assert {cls.kind for cls in RECORDS if cls.kind is not None} == {1, 2, 3, 4, 5, 6, 7, 8, 16}
    key = ConsumerGroupRegularExpressionKey(group_id="g", regular_expression=".*")
    assert leading_int16(key.to_bytes()) == 16


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
def test_records_cut_short_or_of_an_unknown_version_are_refused(cls: type[InternalRecord]) -> None:
    for version in cls.versions:
        raw = cls().to_bytes(version)
        assert cls.from_bytes(raw) == cls()
        for end in range(len(raw)):
            with pytest.raises(ProtocolError):
                cls.from_bytes(raw[:end])
    with pytest.raises(ProtocolError):
        cls.from_bytes(b"\xff\xfe" + cls().to_bytes(cls.versions[-1])[2:])
    with pytest.raises(ProtocolError):
        cls.from_bytes(b"\0\x63" + cls().to_bytes(cls.versions[-1])[2:])

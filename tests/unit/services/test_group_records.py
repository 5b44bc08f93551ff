"""R-CON-3: what is stored of groups is what Apache Kafka stores, byte for byte, and is read back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.groups.events import (
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
    StoredEvent,
    StoredMember,
    SubscribedTopic,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
    TransactionEnded,
)
from headrace.model.errors import ProtocolError
from headrace.model.topics import TopicId
from headrace.records.batch import CONTROL, TRANSACTIONAL
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.records.reader import read_records
from headrace.services.groups.records import decode, decode_batch, encode
from headrace.storage.scan import split_batches
from headrace.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue

GOLDEN_LOGS = Path(__file__).resolve().parents[2] / "golden" / "consumer_offsets"
GOLDEN = GOLDEN_LOGS / "kafka-4.1.1.log"
"""Written by Apache Kafka: classic, static, KIP-848, pattern and converted groups, and one that was deleted."""

ID = TopicId(b"0123456789abcdef")
CLASSIC = ClassicMetadata(45_000, (ClassicProtocol("range", b"subscription"), ClassicProtocol("sticky", b"")))
MEMBER = StoredMember("m", "seat", "client", "/host", 300_000, 45_000, b"subscription", b"assignment")

EVENTS: list[Event] = [
    OffsetCommitted("g", "topic", 3, 42, 7, "note", 1_700_000_000_000),
    OffsetCommitted("g", "topic", 3, 42, -1, "", 1_700_000_000_000),
    OffsetCommitted("g", "topic", 0, 0, -1, "é" * 300, 5, topic_id=ID),
    OffsetCommitted("g", "topic", 3, 42, -1, "", 1, expire_timestamp_ms=99),
    OffsetCommitted("", "t", 0, 0, 0, "", 0),
    OffsetDeleted("g", "topic", 3),
    GroupStored("g", "consumer", 4, "range", "m", 17, (MEMBER, MEMBER)),
    GroupStored("g", "", 0, None, None, 17, ()),
    GroupDeleted("g"),
    ConsumerEpochStored("g", 3, -5),
    ConsumerEpochDeleted("g"),
    ConsumerPartitionsStored("g", (SubscribedTopic(ID, "topic", 2, ((0, ("a", "b")), (1, ()))),)),
    ConsumerPartitionsDeleted("g"),
    ConsumerMemberStored("g", "m", None, None, "client", "/host", ("a", "b"), None, 1000, None),
    ConsumerMemberStored("g", "m", "seat", "rack", "client", "/host", (), "a.*", 1000, "range", CLASSIC),
    ConsumerMemberDeleted("g", "m"),
    TargetEpochStored("g", 9),
    TargetEpochStored("g", 9, 1_700_000_000_000),
    TargetEpochDeleted("g"),
    TargetStored("g", "m", {ID: frozenset({0, 5, 2})}),
    TargetStored("g", "m", {}),
    TargetDeleted("g", "m"),
    CurrentAssignmentStored("g", "m", 5, 4, 1, {ID: frozenset({1})}, {ID: frozenset({2})}),
    CurrentAssignmentDeleted("g", "m"),
    RegexStored("g", "a.*", ("ab", "ac"), 3, 17),
    RegexDeleted("g", "a.*"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_round_trip(event: Event) -> None:
    key, value = encode(event)
    assert decode(key, value) == event
    assert (value is None) == type(event).__name__.endswith("Deleted")


def test_every_record_is_covered() -> None:
    stored = {OffsetCommitted} | {kind for kind in StoredEvent.__subclasses__() if kind.__slots__}
    assert {type(event) for event in EVENTS} == stored - {TransactionEnded}


def test_apache_kafka_wrote_the_same_bytes() -> None:
    data = memoryview(GOLDEN.read_bytes())
    kinds = set()
    for position, size in split_batches(data):
        batch = data[position : position + size]
        events = list(decode_batch(batch))
        stored = [(record.key, record.value) for record in read_records(batch)]
        assert [encode(event) for event in events] == stored
        kinds |= {type(event) for event in events}
    assert kinds >= {OffsetCommitted, OffsetDeleted, GroupStored, GroupDeleted, ConsumerMemberStored, RegexStored}
    assert kinds >= {CurrentAssignmentStored, TargetStored, TargetEpochStored, ConsumerEpochStored, TargetDeleted}


def test_what_kafka_4_3_added_is_read_over() -> None:
    """All that it writes is known, but for the epochs of assigned partitions, a tagged field (KIP-1251)."""
    data = memoryview((GOLDEN_LOGS / "kafka-4.3.1.log").read_bytes())
    other = set()
    for position, size in split_batches(data):
        batch = data[position : position + size]
        events = list(decode_batch(batch))
        stored = [(record.key, record.value) for record in read_records(batch)]
        assert len(events) == len(stored)
        other |= {type(event) for event, bytes_ in zip(events, stored, strict=True) if encode(event) != bytes_}
    assert other == {CurrentAssignmentStored}


def test_positions_by_hand_are_those_of_the_schema() -> None:
    for event in EVENTS:
        if isinstance(event, OffsetCommitted) and event.expire_timestamp_ms < 0:
            key, value = encode(event)
            assert (
                key
                == OffsetCommitKey(group=event.group_id, topic=event.topic, partition=event.partition).to_bytes()
            )
            assert value == OffsetCommitValue(
                offset=event.offset,
                leader_epoch=event.leader_epoch,
                metadata=event.metadata,
                commit_timestamp=event.commit_timestamp_ms,
                topic_id=event.topic_id,
            ).to_bytes(4)


@pytest.mark.parametrize("version", range(5))
def test_old_positions_are_read(version: int) -> None:
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9).to_bytes(version)
    expected = OffsetCommitted("g", "t", 1, 7, -1, "m", 9)
    key = OffsetCommitKey(group="g", topic="t", partition=1).to_bytes()
    assert decode(key, value) == expected
    assert decode(b"\0\0" + key[2:], value) == expected, "keys of kind 0 have the same fields"


def test_kinds_of_others_are_left_alone() -> None:
    assert decode(b"\0\x0b\0\1g", b"\0\0") is None
    assert decode(b"\x7f\xff", None) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0", None),
        (b"\0\1\0\5ab", None),
        (b"\0\1\0\1\xff\0\1t\0\0\0\0", None),
        (b"\0\1\0\1g\0\1t\0\0", None),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\x63" + bytes(22)),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\4" + bytes(10)),
        (b"\0\2\0\1g", b"\0\3\0"),
    ],
)
def test_broken_records(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode(key, value)


def test_transactional_batches() -> None:
    """Their positions wait for the control record."""
    commit = OffsetCommitted("g", "t", 0, 5, -1, "", 9, producer_id=77)
    key, value = encode(commit)
    stamp = ProducerStamp(77, 0, 0)
    batch = build_batch([NewRecord(value, key)], attributes=TRANSACTIONAL, producer=stamp)
    assert list(decode_batch(memoryview(batch))) == [commit]
    for kind, committed in ((1, True), (0, False)):
        marker = NewRecord(b"\0\0\0\0\0\0", b"\0\0\0" + bytes([kind]))
        control = build_batch([marker], attributes=TRANSACTIONAL | CONTROL, producer=stamp)
        assert list(decode_batch(memoryview(control))) == [TransactionEnded(77, committed)]
    idempotent = build_batch([NewRecord(value, key)], producer=stamp)
    (plain,) = decode_batch(memoryview(idempotent))
    assert isinstance(plain, OffsetCommitted)
    assert plain.producer_id == -1

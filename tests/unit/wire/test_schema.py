"""The engine's own rules: bounds before allocation, nulls, tags, and our bugs caught as assertions."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest

from headrace.model.errors import ProtocolError
from headrace.model.limits import MAX_STRING_BYTES, MAX_TAGGED_FIELDS
from headrace.model.varint import write_uvarint
from headrace.wire.messages.create_topics import CreateTopicsRequest
from headrace.wire.messages.fetch import FetchRequest, ReplicaState
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.primitives import INT32, STRING
from headrace.wire.produce import transactional_id_of
from headrace.wire.schema import Message, Struct, array, field


class Inner(Struct):
    size: int = field(INT32)


class Sample(Message):
    """A message with one of everything that has rules of its own."""

    flexible_since = 2
    name: str = field(STRING)
    items: list[Inner] | None = field(array(Inner), nullable=1)
    late: int = field(INT32, since=1, ignorable=False)
    tagged: str | None = field(STRING, since=2, nullable=2, tag=3, default=None)
    inner: Inner = field(Inner, since=2, ignorable=False)
    maybe: Inner | None = field(Inner, since=2, nullable=2)


def test_defaults_are_not_shared_between_messages() -> None:
    first, second = Sample(), Sample()
    first.items = [Inner(size=1)]
    first.inner.size = 5
    assert second.items == []
    assert second.inner.size == 0
    assert Sample.decode(Sample().encode(0), 0).inner is not Sample.decode(Sample().encode(0), 0).inner


@pytest.mark.parametrize("count", [-2, 1, 1 << 20, (1 << 31) - 1, -(1 << 31)])
def test_a_count_beyond_the_frame_is_refused_before_anything_is_allocated(count: int) -> None:
    raw = struct.pack(">hi", 0, count)
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        Sample.decode(raw, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_compact_count_beyond_the_frame_is_refused() -> None:
    with pytest.raises(ProtocolError):
        CreateTopicsRequest.decode(b"\xff\xff\xff\xff\x0f" + bytes(8), 5)
    with pytest.raises(ProtocolError, match="longer than"):
        CreateTopicsRequest.decode(b"\xff" * 20, 5)


@pytest.mark.parametrize("version", [2, 3])
def test_a_text_is_limited_in_both_encodings(version: int) -> None:
    """FindCoordinator hashes it character by character: 10 MB took seconds, in which nobody else was served."""
    longest = FindCoordinatorRequest(key="g" * MAX_STRING_BYTES)
    assert FindCoordinatorRequest.decode(longest.encode(version), version) == longest
    if version == 3:
        with pytest.raises(ProtocolError, match="a string of 32768 bytes"):
            FindCoordinatorRequest.decode(FindCoordinatorRequest(key="g" * (MAX_STRING_BYTES + 1)).encode(3), 3)


def test_so_is_the_transactional_id_of_a_produce() -> None:
    frame = bytearray()
    write_uvarint(frame, MAX_STRING_BYTES + 2)
    frame += b"i" * (MAX_STRING_BYTES + 1)
    with pytest.raises(ProtocolError, match="a transactional id of 32768 bytes"):
        transactional_id_of(memoryview(frame), 0, 9)


@pytest.mark.parametrize("size", [-1, -2, 5, (1 << 31) - 1])
def test_bytes_of_a_wrong_size_are_refused(size: int) -> None:
    with pytest.raises(ProtocolError):
        SaslAuthenticateRequest.decode(struct.pack(">i", size) + b"abcd", 0)


def test_null_is_refused_where_it_is_not_allowed() -> None:
    null_name = struct.pack(">hi", -1, 0)
    with pytest.raises(ProtocolError, match=r"Sample\.name is null"):
        Sample.decode(null_name, 0)
    with pytest.raises(ProtocolError, match="count of -1"):
        Sample.decode(struct.pack(">hi", 0, -1), 0)
    assert Sample.decode(struct.pack(">hii", 0, -1, 0), 1).items is None
    with pytest.raises(ProtocolError):
        MetadataRequest.decode(struct.pack(">i", -1), 0)
    assert MetadataRequest.decode(struct.pack(">i", -1), 1).topics is None


def test_a_string_must_be_utf8() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        Sample.decode(struct.pack(">h", 2) + b"\xff\xfe" + struct.pack(">i", 0), 0)


def test_nullable_structures() -> None:
    for value in (None, Inner(size=9)):
        message = Sample(maybe=value)
        assert Sample.decode(message.encode(2), 2).maybe == value


def test_unknown_tags_are_skipped_and_known_ones_read() -> None:
    plain = Sample(tagged=None).encode(2)
    assert plain.endswith(b"\0")
    with_tags = plain[:-1] + b"\x02" + b"\x03\x03\x03ab" + b"\x09\x02zz"
    assert Sample.decode(with_tags, 2).tagged == "ab"


@pytest.mark.parametrize(
    "tags", [b"\x01\x03\x02\x03ab", b"\x01\x03\x04\x03ab\0", b"\x01\x09\x7fzz", b"\x02\x09\x00"]
)
def test_a_tag_that_lies_about_its_size_is_refused(tags: bytes) -> None:
    plain = Sample(tagged=None).encode(2)
    with pytest.raises(ProtocolError):
        Sample.decode(plain[:-1] + tags, 2)


def test_the_number_of_tags_is_limited() -> None:
    plain = Sample(tagged=None).encode(2)
    count = MAX_TAGGED_FIELDS + 1
    raw = plain[:-1] + bytes((count & 0x7F | 0x80, count >> 7)) + b"\x09\x00" * count
    with pytest.raises(ProtocolError, match="tagged fields"):
        Sample.decode(raw, 2)


def test_a_value_that_the_version_cannot_carry_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="late"):
        Sample(late=1).encode(0)
    with pytest.raises(AssertionError, match="inner"):
        Sample(inner=Inner(size=1)).encode(1)
    assert Sample(tagged="ignorable").encode(1) == Sample().encode(1)
    with pytest.raises(AssertionError):
        FetchRequest(replica_state=ReplicaState(replica_id=1)).encode(14)


def test_an_unknown_field_is_our_bug() -> None:
    wrong: dict[str, Any] = {"nmae": "x"}
    with pytest.raises(AssertionError, match="has no field"):
        Sample(**wrong)


def test_messages_compare_and_print_by_value() -> None:
    topic = MetadataRequestTopic(name="t")
    assert topic == MetadataRequestTopic(name="t")
    assert topic != MetadataRequestTopic(name="u")
    assert "name='t'" in repr(topic)

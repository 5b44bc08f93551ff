"""Bad record batches on the wire (reliability.md section 5): refused with the right code, nothing of them kept."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c

from headrace.testing.raw_client import BatchShape, RawClient, build_batch
from tests.compat.conftest import MakeTopic

UNKNOWN_SERVER_ERROR = -1
CORRUPT_MESSAGE = 2
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
INVALID_RECORD = 87
UNSUPPORTED_COMPRESSION = 76
REFUSED = (CORRUPT_MESSAGE, INVALID_RECORD, UNSUPPORTED_FOR_MESSAGE_FORMAT)

PLAIN = BatchShape()
VALUES = [b"one", b"two", b"three"]


def refused_with(bootstrap: str, topic: str, records: bytes | None) -> int:
    """The error code; nothing was appended, and a right batch is still taken on the same connection."""
    with RawClient(bootstrap) as client:
        answer = client.produce(topic, 0, records)
        assert answer.error != 0
        assert answer.base_offset == -1
        assert client.fetch(topic, 0, 0).high_watermark == 0
        assert client.produce(topic, 0, build_batch(VALUES)).base_offset == 0
    return answer.error


def test_bad_crc(bootstrap: str, topic: str) -> None:
    assert refused_with(bootstrap, topic, build_batch(VALUES, replace(PLAIN, crc_error=1))) == CORRUPT_MESSAGE


def test_one_bit_flipped_anywhere(bootstrap: str, topic: str) -> None:
    """Every byte that the checksum covers, one flipped bit each: none gets in."""
    whole = build_batch(VALUES)
    with RawClient(bootstrap) as client:
        for position in range(21, len(whole)):
            spoiled = bytearray(whole)
            spoiled[position] ^= 1 << (position % 8)
            assert client.produce(topic, 0, bytes(spoiled)).error == CORRUPT_MESSAGE, position
        assert client.fetch(topic, 0, 0).high_watermark == 0


@pytest.mark.parametrize("error", [1, 1_000_000, -5, -60])
def test_wrong_batch_length(bootstrap: str, topic: str, error: int) -> None:
    assert refused_with(bootstrap, topic, build_batch(VALUES, replace(PLAIN, length_error=error))) in REFUSED


@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 60])
def test_batch_cut_off(bootstrap: str, topic: str, size: int) -> None:
    assert refused_with(bootstrap, topic, build_batch(VALUES)[:size]) in REFUSED


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_unknown_magic(bootstrap: str, topic: str, magic: int) -> None:
    assert refused_with(bootstrap, topic, build_batch(VALUES, replace(PLAIN, magic=magic))) in REFUSED


def old_message(magic: int) -> bytes:
    """A message of format v0 or v1, as clients of ten years ago sent."""
    time = struct.pack(">q", 1_700_000_000_000) if magic == 1 else b""
    body = struct.pack(">bb", magic, 0) + time + struct.pack(">ii", -1, 1) + b"v"
    # The old checksum is zlib's; whether it is right does not matter any more.
    message = struct.pack(">I", crc32c(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(bootstrap: str, topic: str, magic: int) -> None:
    assert refused_with(bootstrap, topic, old_message(magic)) in REFUSED


@pytest.mark.parametrize(
    "shape",
    [
        replace(PLAIN, record_count=2),
        replace(PLAIN, record_count=4),
        replace(PLAIN, record_count=-1),
        replace(PLAIN, record_count=0),
        replace(PLAIN, last_offset_delta=7),
        replace(PLAIN, last_offset_delta=-1),
        replace(PLAIN, last_offset_delta=2**31 - 1),
    ],
)
def test_counts_that_do_not_add_up(bootstrap: str, topic: str, shape: BatchShape) -> None:
    """With a right checksum, so that only looking at the numbers tells."""
    assert refused_with(bootstrap, topic, build_batch(VALUES, shape)) in REFUSED


def test_two_batches_for_one_partition(bootstrap: str, topic: str) -> None:
    """Since v3 of Produce: exactly one."""
    assert refused_with(bootstrap, topic, build_batch(VALUES) + build_batch(VALUES)) == INVALID_RECORD


def test_no_batch_at_all(bootstrap: str, topic: str) -> None:
    assert refused_with(bootstrap, topic, b"") in REFUSED


def test_batch_without_records(bootstrap: str, topic: str) -> None:
    assert refused_with(bootstrap, topic, build_batch([])) in REFUSED


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(bootstrap: str, topic: str, codec: int) -> None:
    """Kafka has no better answer than UNKNOWN_SERVER_ERROR for it."""
    code = refused_with(bootstrap, topic, build_batch(VALUES, replace(PLAIN, attributes=codec)))
    assert code in (*REFUSED, UNSUPPORTED_COMPRESSION, UNKNOWN_SERVER_ERROR)


def test_control_batch_from_a_client(bootstrap: str, topic: str) -> None:
    """Only brokers write transaction markers."""
    shape = replace(PLAIN, attributes=0x20, producer_id=1, producer_epoch=0, base_sequence=0)
    assert refused_with(bootstrap, topic, build_batch(VALUES, shape)) in REFUSED


@pytest.mark.parametrize("offset", [1_000, -5])
def test_offsets_that_a_client_chose(bootstrap: str, topic: str, offset: int) -> None:
    """The broker numbers records; a client's batch begins at 0."""
    batch = build_batch(VALUES, replace(PLAIN, base_offset=offset))
    assert refused_with(bootstrap, topic, batch) == INVALID_RECORD


def test_records_without_a_key_in_a_compacted_topic(bootstrap: str, make_topic: MakeTopic) -> None:
    """R-LOG-5: refused; with a key it is taken."""
    name = make_topic(configs={"cleanup.policy": "compact"})
    with RawClient(bootstrap) as client:
        assert client.produce(name, 0, build_batch(VALUES)).error == INVALID_RECORD
        assert client.produce(name, 0, build_batch(VALUES, key=b"k")).error == 0


@pytest.mark.headrace_only
def test_null_records(bootstrap: str, topic: str) -> None:
    """Null instead of records is refused. (Apache Kafka never answers it.)"""
    with RawClient(bootstrap) as client:
        assert client.produce(topic, 0, None).error in REFUSED

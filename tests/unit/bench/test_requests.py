"""What the load generator sends must be what a client would send, or the comparison compares nothing."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bench.requests import (
    CODECS,
    FILE_MAGIC,
    batch,
    fetch,
    produce,
    random_values,
    text_values,
    values_per_batch,
    write_requests,
    zigzag,
)
from headrace.records.batch import checked_header
from headrace.records.compression import Codec, decompress
from headrace.wire.messages.fetch import FetchRequest
from headrace.wire.messages.produce import ProduceRequest

HEADER_SIZE = 4 + 2 + 2 + 4 + 2 + len("bench") + 1


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_passes_the_product_own_checks(codec: str) -> None:
    made = batch(text_values(50, 100), codec)
    header = checked_header(made)
    assert (header.record_count, header.last_offset_delta, header.codec) == (50, 49, CODECS[codec])


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
def test_compressed_records_are_the_plain_ones(codec: str) -> None:
    values = text_values(200, 300)
    plain, packed = batch(values)[61:], batch(values, codec)[61:]
    assert len(packed) < len(plain) / 2
    assert bytes(decompress(Codec(CODECS[codec]), packed, len(plain))) == plain


def test_a_large_batch_stays_below_the_default_limit_of_a_broker() -> None:
    for size in (10, 100, 1024, 10_240, 102_400):
        made = batch(random_values(values_per_batch(size, 1 << 20), size))
        assert len(made) <= 1 << 20


def test_produce_is_the_message_it_should_be() -> None:
    made = batch([b"value"])
    request = produce("orders", 3, made)
    message = ProduceRequest.decode(request.frame, 9, HEADER_SIZE)
    assert message.topic_data[0].name == "orders"
    assert message.topic_data[0].partition_data[0].index == 3
    assert message.topic_data[0].partition_data[0].records == made
    assert request.frame[request.batch_at : request.batch_at + request.batch_size] == made


def test_the_stamp_goes_into_the_first_value() -> None:
    request = produce("t", 0, batch([b"12345678 and more", b"second"]))
    assert request.frame[request.stamp_at :].startswith(b"12345678 and more")


def test_fetch_is_the_message_it_should_be_and_knows_its_places() -> None:
    request = fetch("orders", 2, 77, 4096, session=True)
    message = FetchRequest.decode(request.frame, 12, HEADER_SIZE)
    partition = message.topics[0].partitions[0]
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (2, 77, 4096)
    assert struct.unpack_from(">ii", request.frame, request.session_at) == (0, 0)
    assert struct.unpack_from(">q", request.frame, request.offset_at) == (77,)


def test_a_request_file_numbers_its_frames(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "file", [fetch("t", 0, 0, 1), fetch("t", 1, 0, 1)])
    data = path.read_bytes()
    assert data.startswith(FILE_MAGIC + struct.pack("<I", 2))
    first = struct.unpack_from("<10I", data, 12)
    frames = data[12 + 2 * 40 :]
    second_frame = frames[first[0] :]
    assert struct.unpack_from(">i", frames, 8) == (0,)
    assert struct.unpack_from(">i", second_frame, 8) == (1,)


def test_zigzag() -> None:
    assert [zigzag(value) for value in (0, -1, 1, -64, 64)] == [b"\0", b"\1", b"\2", b"\x7f", b"\x80\x01"]

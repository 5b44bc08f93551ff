"""Broken bytes: a KafkaError that names the place, never a crash, a wrong row or a read outside (R-SPK-1).

The CRC catches what the network breaks. A producer that writes nonsense with a good CRC gets past it, so most
cases here are sealed again after they were broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.varint import write_uvarint, write_varint
from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.records.builder import NewRecord, build_batch
from headrace.records.compression import Codec
from headrace.records.reader import Record, read_records
from headrace.spark.arrow import kernels, pure
from headrace.spark.arrow.assembly import lines_for
from headrace.spark.arrow.columns import ALL_COLUMNS
from headrace.spark.arrow.engine import Engine
from tests.unit.spark.arrow.cases import (
    Chunk,
    Log,
    both_engines,
    decoded,
    new_records,
    record_bytes,
    resealed,
    rows_of,
    with_records,
)

SAMPLE = bytes(
    build_batch(
        [
            NewRecord(b"value", b"key", 1_000, [("name", b"text"), ("n", None)]),
            NewRecord(None, None, 2_000),
            NewRecord(b"x" * 200, b"", 1_500),
        ],
        base_offset=40,
    )
)
BROKEN = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.RECORD_LIST_TOO_LARGE}
BROKEN |= {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.INVALID_RECORD}


def outcome(data: bytes, loops: Engine) -> list[dict[str, Any]] | ErrorCode:
    try:
        return decoded([Chunk(memoryview(data))], loops, rows_per_batch=100)
    except KafkaError as error:
        return error.code


def agreed(data: bytes) -> list[dict[str, Any]] | ErrorCode:
    compiled = outcome(data, kernels)
    assert not isinstance(compiled, ErrorCode) or compiled in BROKEN
    assert compiled == outcome(data, pure)
    return compiled


def one_by_one(batch: bytes) -> tuple[list[Record], str]:
    try:
        return list(read_records(batch)), ""
    except KafkaError as error:
        return [], str(error)


def same_as_record_by_record(batch: bytes) -> None:
    """What a reader of single records accepts has its rows; what it refuses is refused."""
    found = agreed(batch)
    expected, problem = one_by_one(batch)
    if problem:
        # A name that is not UTF-8 is no reason to stop a pipeline; see `as_text`.
        assert isinstance(found, ErrorCode) or "not UTF-8" in problem
        return
    if isinstance(found, ErrorCode):
        numbers = [number for record in expected for number in record[:2]]
        assert any(not -(2**63) <= number < 2**63 for number in numbers), "refused, but sound"
        return
    assert found == rows_of(Log((batch,)))


def test_any_byte_changed_is_found_by_the_crc() -> None:
    """All but the base offset and the leader epoch, which a broker sets without touching the CRC."""
    for position in (*range(8, 12), *range(16, len(SAMPLE))):
        broken = bytearray(SAMPLE)
        broken[position] ^= 0x55
        assert isinstance(agreed(bytes(broken)), ErrorCode), position


def test_cut_off_anywhere() -> None:
    for size in range(1, len(SAMPLE)):
        assert agreed(SAMPLE[:size]) == ErrorCode.CORRUPT_MESSAGE, size


def test_records_cut_off_anywhere() -> None:
    """The header and the CRC agree with the bytes; the records do not."""
    for size in range(len(SAMPLE) - HEADER_SIZE):
        assert agreed(with_records(SAMPLE, record_bytes(SAMPLE)[:size])) == ErrorCode.CORRUPT_MESSAGE, size


def test_every_value_of_every_byte_of_the_records() -> None:
    """Every byte of small records takes the values that mean the most to a varint."""
    batch = bytes(build_batch([NewRecord(b"ab", b"c", 5, [("h", b"i")]), NewRecord(None, b"", 6)]))
    for position in range(HEADER_SIZE, len(batch)):
        for value in (0, 1, 2, 3, 5, 0x10, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF):
            broken = bytearray(batch)
            broken[position] = value
            same_as_record_by_record(resealed(broken))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(new_records, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_bytes_changed_under_a_good_crc(records: list[NewRecord], changes: list[tuple[int, int]]) -> None:
    batch = build_batch(records)
    for position, value in changes:
        batch[HEADER_SIZE + position % (len(batch) - HEADER_SIZE)] = value
    same_as_record_by_record(resealed(batch))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 8))
def test_garbage_as_records(garbage: bytes, count: int) -> None:
    same_as_record_by_record(with_records(SAMPLE, garbage, record_count=count))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(list(Codec)), st.integers(0, 400), st.integers(0, 255))
def test_bytes_changed_in_compressed_records(codec: Codec, position: int, value: int) -> None:
    batch = build_batch([NewRecord(b"a" * 100, b"k", 5, [("h", b"v")])] * 5, codec=codec)
    batch[HEADER_SIZE + position % (len(batch) - HEADER_SIZE)] = value
    agreed(resealed(batch))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, HEADER_SIZE - 1), st.integers(0, 255))
def test_bytes_changed_in_the_header(position: int, value: int) -> None:
    """Under a good CRC: counts, lengths and flags that lie."""
    batch = bytearray(SAMPLE)
    batch[position] = value
    agreed(resealed(batch))


@pytest.mark.parametrize("count", [-1, -(2**31), 4, 2**31 - 1])
@both_engines
def test_record_count_that_lies(loops: Engine, count: int) -> None:
    assert outcome(with_records(SAMPLE, record_bytes(SAMPLE), record_count=count), loops) in BROKEN


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
@both_engines
def test_batch_length_that_lies(loops: Engine, length: int) -> None:
    batch = SAMPLE[:8] + length.to_bytes(4, "big", signed=True) + SAMPLE[12:]
    assert outcome(batch, loops) == ErrorCode.CORRUPT_MESSAGE


def record_with(*numbers: int | bytes) -> bytes:
    """A record whose parts are given as numbers (varints) and raw bytes; its length is right."""
    body = bytearray(1)
    for number in numbers:
        if isinstance(number, bytes):
            body += number
        else:
            write_varint(body, number)
    out = bytearray()
    write_varint(out, len(body))
    return bytes(out + body)


HUGE = (2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63), -2)
TOO_LONG = b"\xff" * 10 + b"\x01"
BEYOND_64_BITS = b"\xff" * 9 + b"\x02"


@pytest.mark.parametrize("record", [
    *(record_with(0, 0, number, b"", -1, 0) for number in HUGE),
    *(record_with(0, 0, -1, number, 0) for number in HUGE),
    *(record_with(0, 0, -1, -1, number) for number in (*HUGE, -1)),
    *(record_with(0, 0, -1, -1, 1, number, -1) for number in (*HUGE, -1)),
    *(record_with(0, 0, -1, -1, 1, 1, b"n", number) for number in HUGE),
    record_with(TOO_LONG, 0, -1, -1, 0),
    record_with(0, TOO_LONG, -1, -1, 0),
    record_with(0, BEYOND_64_BITS, -1, -1, 0),
    record_with(2**63 - 1, 0, -1, -1, 0),
    record_with(0, 2**63 - 1, -1, -1, 0),
    record_with(0, 0, -1, -1, 0, b"\0"),
    record_with(0, 0, -1, -1),
    record_with(),
    b"\x00", b"\x01", b"\x80" * 7, TOO_LONG, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
])  # fmt: skip
@both_engines
def test_numbers_that_lie(loops: Engine, record: bytes) -> None:
    padded = record if len(record) >= 7 else record + bytes(7)
    batch = with_records(SAMPLE, padded, record_count=1)
    with pytest.raises(KafkaError, match=r"partition some\.topic-7, batch at offset 40: ") as caught:
        decoded([Chunk(memoryview(batch))], loops)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@both_engines
def test_the_bad_record_is_named(loops: Engine) -> None:
    good = record_bytes(SAMPLE)
    batch = with_records(SAMPLE, good + b"\x0e" + bytes(7), record_count=4)
    with pytest.raises(KafkaError, match="batch at offset 40: record number 3 does not add up"):
        decoded([Chunk(memoryview(batch))], loops)


@both_engines
def test_a_bad_batch_among_good_ones_is_named(loops: Engine) -> None:
    bad = with_records(SAMPLE, record_bytes(SAMPLE)[:-1], base_offset=77)
    with pytest.raises(KafkaError, match="batch at offset 77: record number 2"):
        decoded([Chunk(memoryview(SAMPLE + bad))], loops)


@both_engines
@pytest.mark.parametrize("padding", [0, 64])
def test_nothing_behind_the_section_is_read(loops: Engine, padding: int) -> None:
    """A record that reaches beyond its batch is refused although the buffer goes on there."""
    data = record_with(0, 0, -1, 30, b"")
    table = np.zeros((9, 1), np.int64)
    buffer = np.frombuffer(data + bytes(padding), np.uint8)
    for end in range(len(data) + 1):
        sections = np.array([[0, end, 1, 0, 0, 0, 0]], np.int64)
        assert loops.index_records(buffer, sections, 0, 9, lines_for(ALL_COLUMNS), table, 0) == (0, 0, 0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**70), max_size=6), st.binary(max_size=12), st.integers(0, 100))
def test_engines_agree_on_any_varints(numbers: Sequence[int], tail: bytes, end: int) -> None:
    """The same rows and the same place of the first problem, down to the number of the record."""
    out = bytearray()
    for number in numbers:
        write_uvarint(out, number)
    buffer = np.frombuffer(bytes(out) + tail + b"\0", np.uint8)
    sections = np.array([[0, min(end, len(buffer)), 3, 5, 6, 0, 0]], np.int64)
    lines = lines_for(ALL_COLUMNS)
    tables = np.zeros((2, 9, 3), np.int64)
    compiled = kernels.index_records(buffer, sections, 0, 2**62, lines, tables[0], 0)
    assert compiled == pure.index_records(buffer, sections, 0, 2**62, lines, tables[1], 0)
    assert (tables[0] == tables[1]).all()


def test_sample_is_sound() -> None:
    """Or all of the above would show nothing."""
    assert len(decoded([Chunk(memoryview(SAMPLE))], kernels)) == parse_header(SAMPLE).record_count == 3

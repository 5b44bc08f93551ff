"""The records inside a batch, for the few places that must look at them (by-time lookups, compaction, tools).

A record, after decompression; all numbers are zig-zag varints, and a length of -1 means null:

    length · attributes int8 · timestampDelta · offsetDelta · keyLength key · valueLength value ·
    headerCount · (keyLength key · valueLength value)...

Every length is checked against the bytes of its record before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.model.buffers import Buffer
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.model.varint import read_varint
from headrace.records.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, parse_header
from headrace.records.compression import MAX_DECOMPRESSED_BYTES, decompress

SMALLEST_RECORD = 7
"""Bytes of a record with null key, null value and no headers, its own length included."""


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_records(batch: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of the one batch that `batch` holds; its header must have been checked.

    Raises INVALID_RECORD where the records do not add up, CORRUPT_MESSAGE where they do not decompress.
    """
    header = parse_header(batch)
    data = records_data(header, batch, limit)
    if header.record_count > len(data) // SMALLEST_RECORD:
        raise _invalid(f"{header.record_count} records do not fit into {len(data)} bytes")
    position = 0
    for _ in range(header.record_count):
        record, position = _read_record(header, data, position)
        yield record
    if position != len(data):
        raise _invalid(f"{len(data) - position} bytes follow the last record")


def records_data(header: BatchHeader, batch: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """The decompressed bytes of all records of a batch."""
    return decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], limit)


def _read_record(header: BatchHeader, data: Buffer, position: int) -> tuple[Record, int]:
    try:
        length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > len(data):
            raise _invalid(f"a record of {length} bytes in a batch that has {len(data) - position} left")
        timestamp_delta, position = read_varint(data, position + 1)
        offset_delta, position = read_varint(data, position)
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        headers, position = _read_headers(data, position, end)
    except ProtocolError as error:
        raise _invalid(str(error)) from error
    if position != end:
        raise _invalid(f"a record of {length} bytes ends {end - position} bytes before its length says")
    timestamp = (
        header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp + timestamp_delta
    )
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _read_bytes(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if length < 0 or position + length > end:
        raise _invalid(f"a field of {length} bytes in a record that has {end - position} left")
    return bytes(data[position : position + length]), position + length


def _read_headers(data: Buffer, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if count == 0:
        return (), position
    if count < 0 or count > end - position:
        raise _invalid(f"{count} headers in a record that has {end - position} bytes left")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if key is None:
            raise _invalid("a header without a name")
        try:
            headers.append((key.decode(), value))
        except UnicodeDecodeError as error:
            raise _invalid("a header's name is not UTF-8") from error
    return tuple(headers), position


def _invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"Invalid record: {problem}")

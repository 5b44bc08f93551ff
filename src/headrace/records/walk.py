"""A quick walk over the records of a batch: whether they add up, and what an append must know of each.

It reads every length and copies nothing, so that it costs about a quarter of `reader.read_records`. The names of
headers are not decoded: Kafka takes whatever bytes they are. Format in `reader`.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.model.buffers import Buffer
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.model.varint import read_varint
from headrace.records.batch import BatchHeader
from headrace.records.compression import MAX_DECOMPRESSED_BYTES
from headrace.records.reader import SMALLEST_RECORD, records_data


class Walk(NamedTuple):
    """Facts about records by their place in the batch, from 0 on."""

    timestamp_deltas: list[int]
    without_key: list[int]
    misplaced: list[int]
    """The records whose offset delta is not their place: a broker would serve them under wrong offsets."""


def walk_records(header: BatchHeader, batch: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> Walk:
    """Walk the records. INVALID_RECORD if they do not add up, CORRUPT_MESSAGE if they do not decompress."""
    data = bytes(records_data(header, batch, limit))
    count = header.record_count
    if count > len(data) // SMALLEST_RECORD:
        raise _invalid(f"{count} records do not fit into {len(data)} bytes")
    try:
        walk, end = _walk(data, count)
    except (IndexError, ProtocolError):
        raise _invalid("a record ends in the middle of a field") from None
    if end != len(data):
        raise _invalid(f"{len(data) - end} bytes follow the last record")
    return walk


def _walk(data: bytes, count: int) -> tuple[Walk, int]:
    """The facts about the records, and their end. A varint of one byte, the usual case, needs no call."""
    timestamp_deltas: list[int] = []
    without_key: list[int] = []
    misplaced: list[int] = []
    position, total = 0, len(data)
    for number in range(count):
        value = data[position]
        if value < 0x80:
            end = position + 1 + ((value >> 1) ^ -(value & 1))
            position += 2  # over the attributes too: none are defined
        else:
            value, position = _any_varint(data, position)
            end = position + value
            position += 1
        if end > total:
            raise _invalid(f"record {number} has {end - total} bytes more than the batch")
        value = data[position]
        if value < 0x80:
            timestamp_deltas.append((value >> 1) ^ -(value & 1))
            position += 1
        else:
            value, position = _any_varint(data, position)
            timestamp_deltas.append(value)
        value = data[position]
        if value < 0x80:
            position += 1
            value = (value >> 1) ^ -(value & 1)
        else:
            value, position = _any_varint(data, position)
        if value != number:
            misplaced.append(number)
        value = data[position]
        if value < 0x80:
            position += 1
            value = (value >> 1) ^ -(value & 1)
        else:
            value, position = _any_varint(data, position)
        if value > 0:
            position += value
        elif value:
            _check_null(value, number)
            without_key.append(number)
        value = data[position]
        if value < 0x80:
            position += 1
            value = (value >> 1) ^ -(value & 1)
        else:
            value, position = _any_varint(data, position)
        if value > 0:
            position += value
        elif value:
            _check_null(value, number)
        if data[position]:
            position = _over_headers(data, position, end, number)
        else:
            position += 1
        # Positions only grow, so that a field beyond its record shows here.
        if position != end:
            raise _invalid(f"record {number} ends {end - position} bytes before its length says")
    return Walk(timestamp_deltas, without_key, misplaced), position


def _over_headers(data: bytes, position: int, end: int, number: int) -> int:
    count, position = _any_varint(data, position)
    if count < 0 or count > end - position:
        raise _invalid(f"record {number} states {count} headers in {end - position} bytes")
    for _ in range(count):
        length, position = _any_varint(data, position)
        if length < 0:
            raise _invalid(f"record {number} has a header without a name")
        length, position = _any_varint(data, position + length)
        if length > 0:
            position += length
        elif length:
            _check_null(length, number)
    return position


def _any_varint(data: bytes, position: int) -> tuple[int, int]:
    """A varint of any length, and the position after it; the short ones (up to 8191) without a loop."""
    low = data[position]
    if low < 0x80:
        return (low >> 1) ^ -(low & 1), position + 1
    high = data[position + 1]
    if high >= 0x80:
        return read_varint(data, position)
    raw = low & 0x7F | high << 7
    return (raw >> 1) ^ -(raw & 1), position + 2


def _check_null(length: int, number: int) -> None:
    if length != -1:
        raise _invalid(f"record {number} has a field of {length} bytes")


def _invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"Invalid record: {problem}")

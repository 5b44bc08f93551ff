"""Positions and keys of the records in a batch: the inner loop of compaction, so it is written out flat.

The format is in `records.reader`. Only what compaction needs is read; headers and values are skipped.
"""

from __future__ import annotations

from headrace.model.errors import ProtocolError
from headrace.model.varint import read_uvarint
from headrace.records.reader import SMALLEST_RECORD

_NULL = 1
"""The length -1 as it is encoded."""


class MalformedRecords(Exception):
    """The bytes are not the records that the batch header promises, though its CRC is right."""


def record_layout(
    data: bytes, count: int, last_offset_delta: int
) -> list[tuple[bytes | None, int, int, bool, int]]:
    """For each record in decompressed `data`: key, offset delta, end, has a value, raw timestamp delta.

    A record begins where the one before it ends. The timestamp delta is zig-zag encoded, as in the data.
    """
    if not 0 <= count <= len(data) // SMALLEST_RECORD:
        raise MalformedRecords(f"{count} records do not fit into {len(data)} bytes")
    try:
        places, position = _walk(data, count)
    except (IndexError, ProtocolError) as error:
        raise MalformedRecords("a record is cut off") from error
    if position != len(data):
        raise MalformedRecords(f"the records end at {position} of {len(data)} bytes")
    if places and places[-1][1] > last_offset_delta:
        raise MalformedRecords(f"a record has offset delta {places[-1][1]}, the last is {last_offset_delta}")
    return places


def _walk(data: bytes, count: int) -> tuple[list[tuple[bytes | None, int, int, bool, int]], int]:
    """The layouts, and their end. Numbers of one or two bytes are read in place, longer ones by a call."""
    places: list[tuple[bytes | None, int, int, bool, int]] = []
    append = places.append
    position, previous = 0, -1
    for _ in range(count):
        raw = data[position]
        position += 1
        if raw >= 0x80:
            raw = raw & 0x7F | data[position] << 7
            position += 1
            if raw >= 0x4000:
                raw, position = read_uvarint(data, position - 2)
        end = position + (raw >> 1)
        timestamp = data[position + 1]
        position += 2
        if timestamp >= 0x80:
            timestamp = timestamp & 0x7F | data[position] << 7
            position += 1
            if timestamp >= 0x4000:
                timestamp, position = read_uvarint(data, position - 2)
        delta = data[position]
        position += 1
        if delta >= 0x80:
            delta = delta & 0x7F | data[position] << 7
            position += 1
            if delta >= 0x4000:
                delta, position = read_uvarint(data, position - 2)
        size = data[position]
        position += 1
        if size >= 0x80:
            size = size & 0x7F | data[position] << 7
            position += 1
            if size >= 0x4000:
                size, position = read_uvarint(data, position - 2)
        key = None
        if size != _NULL:
            key = data[position : position + (size >> 1)]
            position += size >> 1
        if position >= end or delta & 1 or delta >> 1 <= previous or (size & 1 and size != _NULL):
            raise MalformedRecords(f"record {len(places)} does not add up")
        previous = delta >> 1
        append((key, previous, end, data[position] != _NULL, timestamp))
        position = end
    return places, position

"""The loops of `kernels` without numba: the same functions, the same answers, tens of times slower.

Used where numba is missing or its compiled code cannot be kept (see `engine`). It is written on its own, on
Python's integers and memoryviews, so that a comparison of the two means something.
"""

from __future__ import annotations

from headrace.client.partitioner import partition_for_key
from headrace.model.varint import write_varint
from headrace.spark.arrow.layout import (
    HEADER_NAME_AT,
    HEADER_NAME_LENGTH,
    HEADER_VALUE_AT,
    HEADER_VALUE_LENGTH,
    MAX_MILLISECONDS,
    NEW_HEADER_COUNT,
    NEW_HEADERS_FIRST,
    NEW_KEY_AT,
    NEW_KEY_LENGTH,
    NEW_VALUE_AT,
    NEW_VALUE_LENGTH,
    NULL_LENGTH,
    SECTION_NUMBERS,
    Bytes,
    Numbers,
    OffsetArray,
)

_MAX_VARINT_BYTES = 10
_MAX_RAW = 2**64 - 1
_INT64 = range(-(2**63), 2**63)


class _Broken(Exception):
    """A record does not add up."""


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    raw = 0
    for index, byte in enumerate(data[position : min(end, position + _MAX_VARINT_BYTES)]):
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if raw > _MAX_RAW:
                raise _Broken
            return (raw >> 1) ^ -(raw & 1), position + index + 1
    raise _Broken


def _field(data: memoryview, position: int, end: int) -> tuple[int, int, int]:
    length, position = _varint(data, position, end)
    if length == NULL_LENGTH:
        return 0, length, position
    if not 0 <= length <= end - position:
        raise _Broken
    return position, length, position + length


def _after_headers(data: memoryview, position: int, end: int, count: int) -> int:
    if not 0 <= count <= end - position:
        raise _Broken
    for _ in range(count):
        _, name_length, position = _field(data, position, end)
        if name_length == NULL_LENGTH:
            raise _Broken
        _, _, position = _field(data, position, end)
    return position


def _microseconds(milliseconds: int) -> int:
    return min(max(milliseconds, -MAX_MILLISECONDS), MAX_MILLISECONDS) * 1000


def _read_record(data: memoryview, position: int, stop: int, section: list[int]) -> tuple[tuple[int, ...], int]:
    """The numbers of a row in the order of the layout, and where the record ends."""
    length, position = _varint(data, position, stop)
    if not 0 <= length <= stop - position:
        raise _Broken
    end = position + length
    timestamp_delta, position = _varint(data, position + 1, end)
    offset_delta, position = _varint(data, position, end)
    key_at, key_length, position = _field(data, position, end)
    value_at, value_length, position = _field(data, position, end)
    header_count, headers_at = _varint(data, position, end)
    if _after_headers(data, headers_at, end, header_count) != end:
        raise _Broken
    *_, base_offset, base_timestamp, append_time, append_timestamp = section
    offset = base_offset + offset_delta
    timestamp = append_timestamp if append_time else base_timestamp + timestamp_delta
    if offset not in _INT64 or timestamp not in _INT64:
        raise _Broken
    at = (key_at, key_length, value_at, value_length, headers_at, header_count)
    return (offset, _microseconds(timestamp), append_time, *at), end


def index_records(
    data: Bytes, sections: Numbers, start: int, end: int, lines: Numbers, table: Numbers, row: int
) -> tuple[int, int, int]:
    view = data.data
    found: list[tuple[int, ...]] = []
    wanted = [number for number, line in enumerate(lines.tolist()) if line >= 0]
    problem = (-1, 0)
    assert sections.shape[1] == SECTION_NUMBERS
    for number, section in enumerate(sections.tolist()):
        bad_record = _index_section(view, section, start, end, found)
        if bad_record >= 0:
            problem = (number, bad_record)
            break
    for source in wanted:
        table[lines[source], row : row + len(found)] = [numbers[source] for numbers in found]
    return row + len(found), *problem


def _index_section(
    data: memoryview, section: list[int], start: int, end: int, found: list[tuple[int, ...]]
) -> int:
    """Adds what it finds; the number of the record that does not add up, -1 for none."""
    position, stop, count = section[:3]
    record = 0
    try:
        while record < count:
            numbers, position = _read_record(data, position, stop, section)
            if start <= numbers[0] < end:
                found.append(numbers)
            record += 1
    except _Broken:
        return record
    return -1 if position == stop else max(count, 0)


def index_headers(data: Bytes, at: Numbers, counts: Numbers, table: Numbers, header: int) -> None:
    view = data.data
    end = len(view)
    for position, count in zip(at.tolist(), counts.tolist(), strict=True):
        for _ in range(count):
            name_at, name_length, position = _field(view, position, end)
            value_at, value_length, position = _field(view, position, end)
            table[:, header] = (name_at, name_length, value_at, value_length)
            header += 1


def copy_fields(data: Bytes, at: Numbers, lengths: Numbers, out: Bytes, offsets: OffsetArray) -> None:
    source, target = data.data, out.data
    for start, length, position in zip(at.tolist(), lengths.tolist(), offsets.tolist(), strict=False):
        if length > 0:
            target[position : position + length] = source[start : start + length]


def _varint_size(number: int) -> int:
    return max(1, (((number << 1) ^ (number >> 63)).bit_length() + 6) // 7)


def _field_size(length: int) -> int:
    return _varint_size(length) + max(length, 0)


def plan_batch(
    table: Numbers,
    headers: Numbers,
    rows: Numbers,
    timestamps: Numbers,
    start: int,
    limit: int,
    most: int,
    sizes: Numbers,
) -> tuple[int, int]:
    total = 0
    chosen = rows[start : start + most]
    deltas = (timestamps[start : start + most] - timestamps[start]).tolist()
    for delta, numbers in enumerate(table[:, chosen].T.tolist()):
        size = 1 + _varint_size(deltas[delta]) + _varint_size(delta)
        size += _field_size(numbers[NEW_KEY_LENGTH]) + _field_size(numbers[NEW_VALUE_LENGTH])
        count, first = numbers[NEW_HEADER_COUNT], numbers[NEW_HEADERS_FIRST]
        size += _varint_size(count)
        for header in headers[:, first : first + count].T.tolist():
            size += _field_size(header[HEADER_NAME_LENGTH]) + _field_size(header[HEADER_VALUE_LENGTH])
        with_length = size + _varint_size(size)
        if delta > 0 and total + with_length > limit:
            return delta, total
        sizes[start + delta] = size
        total += with_length
    return len(chosen), total


def _write_field(out: bytearray, data: memoryview, at: int, length: int) -> None:
    write_varint(out, length)
    if length > 0:
        out += data[at : at + length]


def write_records(
    keys: Bytes,
    values: Bytes,
    header_names: Bytes,
    header_values: Bytes,
    table: Numbers,
    headers: Numbers,
    rows: Numbers,
    timestamps: Numbers,
    sizes: Numbers,
    out: Bytes,
) -> int:
    written = bytearray()
    key_view, value_view = keys.data, values.data
    name_view, header_view = header_names.data, header_values.data
    deltas = (timestamps - timestamps[0]).tolist()
    for delta, (numbers, size) in enumerate(zip(table[:, rows].T.tolist(), sizes.tolist(), strict=True)):
        write_varint(written, size)
        written.append(0)
        write_varint(written, deltas[delta])
        write_varint(written, delta)
        _write_field(written, key_view, numbers[NEW_KEY_AT], numbers[NEW_KEY_LENGTH])
        _write_field(written, value_view, numbers[NEW_VALUE_AT], numbers[NEW_VALUE_LENGTH])
        count, first = numbers[NEW_HEADER_COUNT], numbers[NEW_HEADERS_FIRST]
        write_varint(written, count)
        for header in headers[:, first : first + count].T.tolist():
            _write_field(written, name_view, header[HEADER_NAME_AT], header[HEADER_NAME_LENGTH])
            _write_field(written, header_view, header[HEADER_VALUE_AT], header[HEADER_VALUE_LENGTH])
    out.data[: len(written)] = written
    return len(written)


def place_keys(data: Bytes, at: Numbers, lengths: Numbers, count: int, unkeyed: int, out: OffsetArray) -> None:
    view = data.data
    out[:] = [
        unkeyed if length < 0 else partition_for_key(bytes(view[start : start + length]), count)
        for start, length in zip(at.tolist(), lengths.tolist(), strict=True)
    ]

"""The loops over records, compiled by numba. `pure` has the same functions without it; both must agree.

Input is not trusted: every varint and every length is checked against the end of its record before a byte of it is
read, and numbers that would overflow are refused. A position of -1 means "did not add up"; it passes through every
helper, so one comparison at the end of a record finds it.

The types are given, so all of it is compiled, or loaded from numba's cache, when this module is imported.
"""

from __future__ import annotations

from numba import int32, int64, njit, types, uint8, uint64, void

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
    ROW_APPEND_TIME,
    ROW_HEADER_COUNT,
    ROW_HEADERS_AT,
    ROW_KEY_AT,
    ROW_KEY_LENGTH,
    ROW_OFFSET,
    ROW_TIMESTAMP,
    ROW_VALUE_AT,
    ROW_VALUE_LENGTH,
    SECTION_APPEND_TIME,
    SECTION_APPEND_TIMESTAMP,
    SECTION_BASE_OFFSET,
    SECTION_BASE_TIMESTAMP,
    SECTION_END,
    SECTION_RECORDS,
    SECTION_START,
    Bytes,
    Numbers,
    OffsetArray,
)

MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)
LAST_SHIFT = 63
"""The shift of a varint's tenth byte, of which only one bit fits into 64."""

READ = types.Array(uint8, 1, "C", readonly=True)
"""Bytes that are only read; writable ones fit as well, so there is one compiled version for both."""
WRITE = uint8[::1]
TABLE = int64[:, ::1]
LINE = int64[::1]


@njit(cache=True, nogil=True)
def _varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """The zig-zag number at `position` and the position after it, -1 if it does not end before `end`."""
    if position < 0 or position >= end:
        return 0, -1
    byte = int64(data[uint64(position)])
    position += 1
    value = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if position >= end or shift > LAST_SHIFT:
            return 0, -1
        byte = int64(data[uint64(position)])
        if shift == LAST_SHIFT and byte > 1:
            return 0, -1
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return ((value >> 1) & MAX_INT64) ^ -(value & 1), position


@njit(cache=True, nogil=True)
def _copy(data: Bytes, at: int, length: int, out: Bytes, position: int) -> None:
    """Copies nothing if `length` is NULL_LENGTH. Indices are unsigned: with signed ones the loop would not be
    vectorised.
    """
    source, target = uint64(at), uint64(position)
    for index in range(uint64(max(length, 0))):
        out[target + index] = data[source + index]


@njit(cache=True, nogil=True)
def _field(data: Bytes, position: int, end: int) -> tuple[int, int, int]:
    """The position of a field's bytes, their length, and the position after them."""
    length, position = _varint(data, position, end)
    if length == NULL_LENGTH:
        return 0, length, position
    if position < 0 or length < 0 or length > end - position:
        return 0, 0, -1
    return position, length, position + length


@njit(cache=True, nogil=True)
def _after_headers(data: Bytes, position: int, end: int, count: int) -> int:
    if position < 0 or count < 0 or count > end - position:
        return -1
    for _ in range(count):
        _, name_length, position = _field(data, position, end)
        if name_length == NULL_LENGTH:
            return -1
        _, _, position = _field(data, position, end)
        if position < 0:
            return -1
    return position


@njit(cache=True, nogil=True)
def _fits(base: int, delta: int) -> bool:
    """Whether base + delta is a 64-bit number."""
    return delta <= MAX_INT64 - base if base >= 0 else delta >= MIN_INT64 - base


@njit(cache=True, nogil=True)
def _microseconds(milliseconds: int) -> int:
    return min(max(milliseconds, -MAX_MILLISECONDS), MAX_MILLISECONDS) * 1000


@njit(cache=True, nogil=True)
def _put(table: Numbers, line: int, row: int, number: int) -> None:
    if line >= 0:
        table[line, row] = number


@njit(types.UniTuple(int64, 3)(READ, TABLE, int64, int64, LINE, TABLE, int64), cache=True, nogil=True)
def index_records(
    data: Bytes, sections: Numbers, start: int, end: int, lines: Numbers, table: Numbers, row: int
) -> tuple[int, int, int]:
    """Index the records of every section with offsets in [start, end), from `row` on."""
    for section in range(sections.shape[0]):
        position = sections[section, SECTION_START]
        stop = sections[section, SECTION_END]
        count = sections[section, SECTION_RECORDS]
        base_offset = sections[section, SECTION_BASE_OFFSET]
        base_timestamp = sections[section, SECTION_BASE_TIMESTAMP]
        append_time = sections[section, SECTION_APPEND_TIME]
        append_timestamp = _microseconds(sections[section, SECTION_APPEND_TIMESTAMP])
        for record in range(count):
            length, position = _varint(data, position, stop)
            if position < 0 or length < 0 or length > stop - position:
                return row, section, record
            record_end = position + length
            timestamp_delta, position = _varint(data, position + 1, record_end)
            offset_delta, position = _varint(data, position, record_end)
            key_at, key_length, position = _field(data, position, record_end)
            value_at, value_length, position = _field(data, position, record_end)
            header_count, headers_at = _varint(data, position, record_end)
            position = _after_headers(data, headers_at, record_end, header_count)
            if position != record_end or not _fits(base_offset, offset_delta):
                return row, section, record
            if append_time == 0 and not _fits(base_timestamp, timestamp_delta):
                return row, section, record
            offset = base_offset + offset_delta
            if offset < start or offset >= end:
                continue
            timestamp = append_timestamp
            if append_time == 0:
                timestamp = _microseconds(base_timestamp + timestamp_delta)
            _put(table, lines[ROW_OFFSET], row, offset)
            _put(table, lines[ROW_TIMESTAMP], row, timestamp)
            _put(table, lines[ROW_APPEND_TIME], row, append_time)
            _put(table, lines[ROW_KEY_AT], row, key_at)
            _put(table, lines[ROW_KEY_LENGTH], row, key_length)
            _put(table, lines[ROW_VALUE_AT], row, value_at)
            _put(table, lines[ROW_VALUE_LENGTH], row, value_length)
            _put(table, lines[ROW_HEADERS_AT], row, headers_at)
            _put(table, lines[ROW_HEADER_COUNT], row, header_count)
            row += 1
        if position != stop:
            return row, section, count
    return row, -1, 0


@njit(void(READ, LINE, LINE, TABLE, int64), cache=True, nogil=True)
def index_headers(data: Bytes, at: Numbers, counts: Numbers, table: Numbers, header: int) -> None:
    """Index the headers of rows that `index_records` found to be valid."""
    end = data.shape[0]
    for row in range(at.shape[0]):
        position = at[row]
        for _ in range(counts[row]):
            name_at, name_length, position = _field(data, position, end)
            value_at, value_length, position = _field(data, position, end)
            table[HEADER_NAME_AT, header] = name_at
            table[HEADER_NAME_LENGTH, header] = name_length
            table[HEADER_VALUE_AT, header] = value_at
            table[HEADER_VALUE_LENGTH, header] = value_length
            header += 1


@njit(void(READ, LINE, LINE, WRITE, int32[::1]), cache=True, nogil=True)
def copy_fields(data: Bytes, at: Numbers, lengths: Numbers, out: Bytes, offsets: OffsetArray) -> None:
    """Copies fields one after the other to where Arrow's `offsets` say."""
    for row in range(at.shape[0]):
        source = at[row]
        target = int64(offsets[row])
        _copy(data, source, lengths[row], out, target)


@njit(cache=True, nogil=True)
def _varint_size(number: int) -> int:
    raw = (number << 1) ^ (number >> 63)
    size = 1
    while raw < 0 or raw >= 0x80:
        raw = (raw >> 7) & (MAX_INT64 >> 6)
        size += 1
    return size


@njit(cache=True, nogil=True)
def _field_size(length: int) -> int:
    return _varint_size(length) + max(length, 0)


@njit(types.UniTuple(int64, 2)(TABLE, TABLE, LINE, LINE, int64, int64, int64, LINE), cache=True, nogil=True)
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
    """How many of `rows` from `start` on fit into `limit` bytes of records (one always does), and their bytes.

    `timestamps` and `sizes` go with `rows`, one for one.
    """
    total = 0
    base_timestamp = timestamps[start]
    for index in range(start, min(rows.shape[0], start + most)):
        row = rows[index]
        size = 1 + _varint_size(timestamps[index] - base_timestamp) + _varint_size(index - start)
        size += _field_size(table[NEW_KEY_LENGTH, row]) + _field_size(table[NEW_VALUE_LENGTH, row])
        count = table[NEW_HEADER_COUNT, row]
        size += _varint_size(count)
        first = table[NEW_HEADERS_FIRST, row]
        for header in range(first, first + count):
            size += _field_size(headers[HEADER_NAME_LENGTH, header])
            size += _field_size(headers[HEADER_VALUE_LENGTH, header])
        with_length = size + _varint_size(size)
        if index > start and total + with_length > limit:
            return index - start, total
        sizes[index] = size
        total += with_length
    return min(rows.shape[0] - start, most), total


@njit(cache=True, nogil=True)
def _write_varint(out: Bytes, position: int, number: int) -> int:
    raw = (number << 1) ^ (number >> 63)
    while raw < 0 or raw >= 0x80:
        out[position] = (raw & 0x7F) | 0x80
        position += 1
        raw = (raw >> 7) & (MAX_INT64 >> 6)
    out[position] = raw
    return position + 1


@njit(cache=True, nogil=True)
def _write_field(out: Bytes, position: int, data: Bytes, at: int, length: int) -> int:
    position = _write_varint(out, position, length)
    _copy(data, at, length, out, position)
    return position + max(length, 0)


@njit(int64(READ, READ, READ, READ, TABLE, TABLE, LINE, LINE, LINE, WRITE), cache=True, nogil=True)
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
    """Writes the records of `rows`, whose sizes `plan_batch` gave, and returns the bytes written."""
    position = 0
    base_timestamp = timestamps[0]
    for index in range(rows.shape[0]):
        row = rows[index]
        position = _write_varint(out, position, sizes[index])
        out[position] = 0
        position = _write_varint(out, position + 1, timestamps[index] - base_timestamp)
        position = _write_varint(out, position, index)
        position = _write_field(out, position, keys, table[NEW_KEY_AT, row], table[NEW_KEY_LENGTH, row])
        position = _write_field(out, position, values, table[NEW_VALUE_AT, row], table[NEW_VALUE_LENGTH, row])
        count = table[NEW_HEADER_COUNT, row]
        position = _write_varint(out, position, count)
        first = table[NEW_HEADERS_FIRST, row]
        for header in range(first, first + count):
            at, length = headers[HEADER_NAME_AT, header], headers[HEADER_NAME_LENGTH, header]
            position = _write_field(out, position, header_names, at, length)
            at, length = headers[HEADER_VALUE_AT, header], headers[HEADER_VALUE_LENGTH, header]
            position = _write_field(out, position, header_values, at, length)
    return position


SEED = 0x9747B28C
M = 0x5BD1E995
MASK = 0xFFFFFFFF


@njit(void(READ, LINE, LINE, int64, int64, int32[::1]), cache=True, nogil=True)
def place_keys(data: Bytes, at: Numbers, lengths: Numbers, count: int, unkeyed: int, out: OffsetArray) -> None:
    """The partition of every key by murmur2, as Java's producer computes it; `unkeyed` for null."""
    for row in range(at.shape[0]):
        length = lengths[row]
        if length < 0:
            out[row] = unkeyed
            continue
        position = at[row]
        end = position + (length & ~3)
        value = SEED ^ length
        while position < end:
            k = int64(data[position]) | int64(data[position + 1]) << 8
            k |= int64(data[position + 2]) << 16 | int64(data[position + 3]) << 24
            k = k * M & MASK
            k = (k ^ k >> 24) * M & MASK
            value = (value * M & MASK) ^ k
            position += 4
        rest = length & 3
        if rest:
            for index in range(rest):
                value ^= int64(data[end + index]) << (8 * index)
            value = value * M & MASK
        value = (value ^ value >> 13) * M & MASK
        out[row] = ((value ^ value >> 15) & 0x7FFFFFFF) % count

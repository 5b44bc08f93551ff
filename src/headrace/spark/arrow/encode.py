"""Arrow columns to record batches, without a Python object per row.

    rows = encodable(batch)
    for partition, indices in rows_by_partition(assign_partitions(...)):
        for encoded in encode(rows, indices, codec=Codec.LZ4, now_ms=...): ...

Columns: value, and if there, key, headers, timestamp; others are ignored. A null timestamp is `now_ms`. The
batches have no producer and no CRC yet: whoever sends them stamps and seals them. They are the bytes that
`records.builder.build_batch` would make, cut where `max_batch_bytes` (before compression) or `max_records` is
reached. The memory that they are in comes from `take`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from headrace.client.buffers import Take, fresh_memory
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader
from headrace.records.builder import NO_EPOCH, NO_PRODUCER
from headrace.records.compression import Codec, compress
from headrace.spark.arrow import columns as c
from headrace.spark.arrow.engine import Engine, engine
from headrace.spark.arrow.fields import RecordFields, field_table, list_bounds, valid_rows
from headrace.spark.arrow.layout import (
    HEADER_NAME_AT,
    HEADER_NAME_LENGTH,
    HEADER_NUMBERS,
    HEADER_VALUE_AT,
    HEADER_VALUE_LENGTH,
    NEW_HEADER_COUNT,
    NEW_HEADERS_FIRST,
    NEW_KEY_AT,
    NEW_KEY_LENGTH,
    NEW_NUMBERS,
    NEW_VALUE_AT,
    NEW_VALUE_LENGTH,
    NULL_LENGTH,
    Bytes,
    Numbers,
)

MAX_BATCH_BYTES = 1_000_000
"""A little below what brokers accept by default (`message.max.bytes`)."""
MAX_RECORDS = 100_000
_LARGEST_BATCH = 2**31 - 1
_NULL_TIMESTAMP = -(2**63)
"""No microseconds of Arrow come to as many milliseconds."""
_NO_BYTES: Bytes = np.empty(0, np.uint8)


class Encoded(NamedTuple):
    batch: memoryview
    record_count: int


@dataclass(frozen=True, slots=True)
class EncodableRows:
    """The columns of a record batch as the loops read them."""

    table: Numbers
    timestamps: Numbers | None
    """In milliseconds, _NULL_TIMESTAMP for null; None where no row has one."""
    keys: Bytes
    values: Bytes
    headers: Numbers
    header_names: Bytes
    header_values: Bytes

    def __len__(self) -> int:
        return int(self.table.shape[1])

    def timestamps_of(self, indices: Numbers, now_ms: int) -> Numbers:
        if self.timestamps is None:
            return np.full(len(indices), now_ms, np.int64)
        chosen = self.timestamps[indices]
        chosen[chosen == _NULL_TIMESTAMP] = now_ms
        return chosen


def encodable(rows: pa.RecordBatch) -> EncodableRows:
    names = rows.schema.names
    table = np.zeros((NEW_NUMBERS, rows.num_rows), np.int64)
    keys = _put_fields(table, rows.column(c.KEY) if c.KEY in names else None, NEW_KEY_AT, NEW_KEY_LENGTH)
    values = _put_fields(table, rows.column(c.VALUE), NEW_VALUE_AT, NEW_VALUE_LENGTH)
    headers, header_names, header_values = _no_headers()
    if c.HEADERS in names and not pat.is_null(rows.column(c.HEADERS).type):
        headers, header_names, header_values = _put_headers(table, rows.column(c.HEADERS))
    timestamps = None
    if c.TIMESTAMP in names and not pat.is_null(rows.column(c.TIMESTAMP).type):
        timestamps = _milliseconds(rows.column(c.TIMESTAMP))
    return EncodableRows(table, timestamps, keys, values, headers, header_names, header_values)


def _milliseconds(column: pa.Array) -> Numbers:
    microseconds = column.cast(c.TIMESTAMP_ARROW_TYPE).cast(pa.int64())
    milliseconds: Numbers = microseconds.fill_null(0).to_numpy() // 1000
    milliseconds[~valid_rows(column)] = _NULL_TIMESTAMP
    return milliseconds


def _put_fields(table: Numbers, column: pa.Array | None, at: int, length: int) -> Bytes:
    if column is None or pat.is_null(column.type):
        table[length] = NULL_LENGTH
        return _NO_BYTES
    fields: RecordFields = field_table(column)
    table[at], table[length] = fields.at, fields.lengths
    return fields.data


def _no_headers() -> tuple[Numbers, Bytes, Bytes]:
    return np.zeros((HEADER_NUMBERS, 0), np.int64), _NO_BYTES, _NO_BYTES


def _put_headers(table: Numbers, column: pa.Array) -> tuple[Numbers, Bytes, Bytes]:
    first, counts, elements = list_bounds(column)
    table[NEW_HEADERS_FIRST], table[NEW_HEADER_COUNT] = first, counts
    assert isinstance(elements, pa.StructArray)
    names, values = field_table(elements.field("key")), field_table(elements.field("value"))
    headers = np.empty((HEADER_NUMBERS, len(elements)), np.int64)
    headers[HEADER_NAME_AT], headers[HEADER_NAME_LENGTH] = names.at, names.lengths
    headers[HEADER_VALUE_AT], headers[HEADER_VALUE_LENGTH] = values.at, values.lengths
    _check_names(first, counts, (names.lengths == NULL_LENGTH) | ~valid_rows(elements))
    return headers, names.data, values.data


def _check_names(first: Numbers, counts: Numbers, unnamed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    """Check only headers that belong to a row; what a null list covers is never read."""
    before = np.concatenate(([0], np.cumsum(unnamed)))
    bad = np.flatnonzero(before[first + counts] - before[first])
    if len(bad):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"Row {bad[0]} has a header without a name")


def encode(
    rows: EncodableRows | pa.RecordBatch,
    indices: Numbers | None = None,
    *,
    codec: int = Codec.NONE,
    now_ms: int,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    max_records: int = MAX_RECORDS,
    loops: Engine | None = None,
    take: Take = fresh_memory,
) -> Iterator[Encoded]:
    """The rows named by `indices` (all if None), in that order, as batches for one partition."""
    loops = loops or engine()
    if isinstance(rows, pa.RecordBatch):
        rows = encodable(rows)
    indices = np.arange(len(rows), dtype=np.int64) if indices is None else np.ascontiguousarray(indices, np.int64)
    assert not len(indices) or (indices.min() >= 0 and indices.max() < len(rows)), "no such row"
    timestamps = rows.timestamps_of(indices, now_ms)
    sizes = np.empty(len(indices), np.int64)
    limit = max_batch_bytes - HEADER_SIZE
    start = 0
    while start < len(indices):
        count, size = loops.plan_batch(
            rows.table, rows.headers, indices, timestamps, start, limit, max_records, sizes
        )
        if size + HEADER_SIZE > _LARGEST_BATCH:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"A record of {size} bytes does not fit into a batch")
        mine = slice(start, start + count)
        batch = take(HEADER_SIZE + size)
        out = np.frombuffer(batch, np.uint8)[HEADER_SIZE:]
        written = loops.write_records(
            rows.keys,
            rows.values,
            rows.header_names,
            rows.header_values,
            rows.table,
            rows.headers,
            indices[mine],
            timestamps[mine],
            sizes[mine],
            out,
        )
        assert written == size, "the plan and the writing agree"
        if codec != Codec.NONE:
            batch = _compressed(codec, batch, take)
        _put_header(batch, codec, timestamps[mine])
        yield Encoded(batch, count)
        del batch, out  # whoever has it now decides when its memory can be used again
        start += count


def _compressed(codec: int, batch: memoryview, take: Take) -> memoryview:
    packed = compress(codec, batch[HEADER_SIZE:])
    smaller = take(HEADER_SIZE + len(packed))
    smaller[HEADER_SIZE:] = packed
    return smaller


def _put_header(batch: memoryview, codec: int, timestamps: Numbers) -> None:
    header = BatchHeader(
        base_offset=0,
        batch_length=len(batch) - LENGTH_OVERHEAD,
        leader_epoch=NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=len(timestamps) - 1,
        base_timestamp=int(timestamps[0]),
        max_timestamp=int(timestamps.max()),
        producer_id=NO_PRODUCER.id,
        producer_epoch=NO_PRODUCER.epoch,
        base_sequence=NO_PRODUCER.base_sequence,
        record_count=len(timestamps),
    )
    HEADER.pack_into(batch, 0, *header)

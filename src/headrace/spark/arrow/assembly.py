"""Assembles indexed records into Arrow record batches of a useful size.

An `Indexed` run knows where every field of its rows is. Batches are cut from a queue of them, so a batch can hold
rows of many record batches and still every byte is copied once, into a buffer of the exact size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.model.topics import TopicPartition
from headrace.spark.arrow import columns as c
from headrace.spark.arrow.batches import RUN_BYTES, BatchRun
from headrace.spark.arrow.engine import Engine
from headrace.spark.arrow.headers import Wanted, corrupt
from headrace.spark.arrow.layout import (
    HEADER_NAME_AT,
    HEADER_NUMBERS,
    HEADER_VALUE_AT,
    NOT_ASKED,
    NULL_LENGTH,
    ROW_APPEND_TIME,
    ROW_HEADER_COUNT,
    ROW_HEADERS_AT,
    ROW_KEY_AT,
    ROW_KEY_LENGTH,
    ROW_NUMBERS,
    ROW_OFFSET,
    ROW_TIMESTAMP,
    ROW_VALUE_AT,
    ROW_VALUE_LENGTH,
    SECTION_BASE_OFFSET,
    Bytes,
    Numbers,
)

NUMBERS_OF_COLUMN = {
    c.KEY: (ROW_KEY_AT, ROW_KEY_LENGTH),
    c.VALUE: (ROW_VALUE_AT, ROW_VALUE_LENGTH),
    c.OFFSET: (ROW_OFFSET,),
    c.TIMESTAMP: (ROW_TIMESTAMP,),
    c.TIMESTAMP_TYPE: (ROW_APPEND_TIME,),
    c.HEADERS: (ROW_HEADERS_AT, ROW_HEADER_COUNT),
}
"""What must be noted about each record for a column; topic and partition need nothing."""


def lines_for(columns: Sequence[str]) -> Numbers:
    """Where the numbers that the columns need stand in a table, NOT_ASKED for all others."""
    lines = np.full(ROW_NUMBERS, NOT_ASKED, np.int64)
    asked = sorted({number for name in columns for number in NUMBERS_OF_COLUMN.get(name, ())})
    lines[asked] = np.arange(len(asked))
    return lines


@dataclass(frozen=True, slots=True)
class Indexed:
    """The rows of a run: a table of numbers, and which buffer the positions of which rows are in."""

    table: Numbers
    lines: Numbers
    buffers: tuple[tuple[Bytes, int], ...]
    """Each with the row before which it ends; rows follow each other."""
    rows: int
    size: int

    def line(self, number: int) -> Numbers:
        found: Numbers = self.table[self.lines[number], : self.rows]
        return found


def index_run(engine: Engine, run: BatchRun, lines: Numbers, wanted: Wanted) -> Indexed:
    table = np.empty((int(lines.max()) + 1, run.record_count), np.int64)
    buffers: list[tuple[Bytes, int]] = []
    row = 0
    for data, sections in run.pieces:
        row, section, record = engine.index_records(data, sections, wanted.start, wanted.end, lines, table, row)
        if section >= 0:
            offset = int(sections[section, SECTION_BASE_OFFSET])
            raise corrupt(wanted.partition, offset, f"record number {record} does not add up")
        buffers.append((data, row))
    return Indexed(table, lines, tuple(buffers), row, run.size)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive rows of a run."""

    source: Indexed
    start: int
    end: int

    def line(self, number: int) -> Numbers:
        return self.source.line(number)[self.start : self.end]

    def parts(self) -> Iterator[tuple[Bytes, int, int]]:
        """Each buffer with the rows of this stretch that are in it, counted from the stretch's start."""
        first = self.start
        for data, end in self.source.buffers:
            last = min(end, self.end)
            if last > first:
                yield data, first - self.start, last - self.start
                first = last


class Assembler:
    """Takes runs, and returns record batches of about `rows_per_batch` rows and at most RUN_BYTES (or one run)."""

    def __init__(
        self, engine: Engine, columns: Sequence[str], partition: TopicPartition, rows_per_batch: int
    ) -> None:
        self._engine = engine
        self._columns = tuple(columns)
        self._schema = c.arrow_schema(columns)
        self._partition = partition
        self._rows_per_batch = rows_per_batch
        self._constants: dict[str, pa.Array] = {}
        self._waiting: deque[Stretch] = deque()
        self._rows = 0
        self._size = 0

    def add(self, run: Indexed) -> Iterator[pa.RecordBatch]:
        """The batches that became full."""
        if self._rows and self._size + run.size > RUN_BYTES:
            yield from self.rest()
        if not run.rows:
            return
        self._waiting.append(Stretch(run, 0, run.rows))
        self._rows += run.rows
        self._size += run.size
        while self._rows >= self._rows_per_batch:
            yield self._build(self._take(self._rows_per_batch))

    def rest(self) -> Iterator[pa.RecordBatch]:
        if self._rows:
            yield self._build(self._take(self._rows))

    def _take(self, rows: int) -> list[Stretch]:
        taken: list[Stretch] = []
        self._rows -= rows
        while rows:
            first = self._waiting.popleft()
            count = min(rows, first.end - first.start)
            taken.append(Stretch(first.source, first.start, first.start + count))
            if first.start + count < first.end:
                self._waiting.appendleft(Stretch(first.source, first.start + count, first.end))
            else:
                self._size -= first.source.size
            rows -= count
        return taken

    def _build(self, stretches: Sequence[Stretch]) -> pa.RecordBatch:
        arrays = [self._column(name, stretches) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, stretches: Sequence[Stretch]) -> pa.Array:
        rows = sum(stretch.end - stretch.start for stretch in stretches)
        if name in (c.TOPIC, c.PARTITION):
            return self._constant(name, rows)
        if name == c.HEADERS:
            return headers_column(self._engine, stretches)
        numbers = NUMBERS_OF_COLUMN[name]
        if name in (c.KEY, c.VALUE):
            return bytes_column(self._engine, stretches, *numbers)
        line = _joined([stretch.line(numbers[0]) for stretch in stretches])
        return fixed(c.ARROW_TYPES[name], line.astype(np.int32) if name == c.TIMESTAMP_TYPE else line)

    def _constant(self, name: str, rows: int) -> pa.Array:
        """A column with the same value in every row is created once, and each batch takes a slice of it."""
        known = self._constants.get(name)
        if known is None or len(known) < rows:
            known = (
                repeated_text(self._partition.topic, rows)
                if name == c.TOPIC
                else fixed(c.ARROW_TYPES[name], np.full(rows, self._partition.partition, np.int32))
            )
            self._constants[name] = known
        return known.slice(0, rows)


def _joined(lines: Sequence[Numbers]) -> Numbers:
    return lines[0] if len(lines) == 1 else np.concatenate(lines)


def fixed(arrow_type: pa.DataType, numbers: NDArray[np.int32] | Numbers) -> pa.Array:
    return pa.Array.from_buffers(arrow_type, len(numbers), [None, pa.py_buffer(numbers)], 0)


def repeated_text(text: str, rows: int) -> pa.Array:
    encoded = np.frombuffer(text.encode(), np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(encoded))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.tile(encoded, rows))]
    return pa.Array.from_buffers(pa.string(), rows, buffers, 0)


def validity(valid: NDArray[np.bool_]) -> tuple[pa.Buffer | None, int]:
    """Arrow's bitmap (None if nothing is null), and the number of nulls."""
    nulls = len(valid) - int(np.count_nonzero(valid))
    return (pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None), nulls


def arrow_offsets(lengths: Numbers) -> NDArray[np.int32]:
    """Where each field begins, and at the end where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    return offsets


def bytes_column(engine: Engine, stretches: Sequence[Stretch], at: int, length: int) -> pa.Array:
    lengths = _joined([stretch.line(length) for stretch in stretches])
    offsets = arrow_offsets(lengths)
    out = np.empty(int(offsets[-1]), np.uint8)
    row = 0
    for stretch in stretches:
        positions, sizes = stretch.line(at), stretch.line(length)
        for data, first, end in stretch.parts():
            engine.copy_fields(data, positions[first:end], sizes[first:end], out, offsets[row + first :])
        row += stretch.end - stretch.start
    bitmap, nulls = validity(lengths != NULL_LENGTH)
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers, nulls)


def headers_column(engine: Engine, stretches: Sequence[Stretch]) -> pa.Array:
    """Null for a record without headers, as Spark's own source has it."""
    counts = _joined([stretch.line(ROW_HEADER_COUNT) for stretch in stretches])
    offsets = arrow_offsets(counts)
    headers = _index_headers(engine, stretches, int(offsets[-1]))
    names = bytes_column(engine, headers, HEADER_NAME_AT, HEADER_NAME_AT + 1)
    values = bytes_column(engine, headers, HEADER_VALUE_AT, HEADER_VALUE_AT + 1)
    elements = pa.StructArray.from_arrays([as_text(names), values], fields=list(_header_fields()))
    bitmap, nulls = validity(counts > 0)
    return pa.Array.from_buffers(
        c.HEADERS_TYPE, len(counts), [bitmap, pa.py_buffer(offsets)], nulls, children=[elements]
    )


def _header_fields() -> Iterator[pa.Field]:
    for index in range(c.HEADER_TYPE.num_fields):
        yield c.HEADER_TYPE.field(index)


def _index_headers(engine: Engine, stretches: Sequence[Stretch], total: int) -> list[Stretch]:
    """The headers of rows as stretches themselves, one for all rows, whose buffers follow those of the rows."""
    table = np.empty((HEADER_NUMBERS, total), np.int64)
    buffers: list[tuple[Bytes, int]] = []
    header = 0
    for stretch in stretches:
        positions, counts = stretch.line(ROW_HEADERS_AT), stretch.line(ROW_HEADER_COUNT)
        for data, first, end in stretch.parts():
            engine.index_headers(data, positions[first:end], counts[first:end], table, header)
            header += int(counts[first:end].sum())
            buffers.append((data, header))
    lines = np.arange(HEADER_NUMBERS, dtype=np.int64)
    return [Stretch(Indexed(table, lines, tuple(buffers), total, 0), 0, total)]


def as_text(names: pa.Array) -> pa.Array:
    """Header names as strings; what is not UTF-8 is replaced, as Java's consumer does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.as_py().decode("utf-8", "replace") for name in names], pa.string())

"""Rows to a Delta table: tasks write Parquet files, the driver adds them to the table in one commit.

A commit contains its writer and the number of the write (Delta's `txn`). A number that the table already has is
not written again: the files of its tasks are deleted. Nobody else can write it between that check and the commit,
since the table refuses a commit if another one of the same writer came first. Files of tasks that failed or were
killed belong to no commit, so no reader of the table sees them; `vacuum` removes them.

A stream is identified by the id of its query, which only its tasks know: a query that starts over with an empty
checkpoint counts its batches from 0 again, and those are not the batches that the table has.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, CommitProperties, Transaction
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.spark.compat import StreamArrowWriter, streaming_batch
from headrace.spark.delta.files import TableFiles
from headrace.spark.delta.table import TableOptions, arrow_columns, arrow_schema, find_table
from headrace.spark.errors import SourceError

ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: str
    size: int
    rows: int
    partition_values: Mapping[str, str | None]


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """What a task reports to the driver."""

    files: tuple[WrittenFile, ...]
    query_id: str | None = None
    """The id of the stream's query."""


class DeltaWriter(DataSourceArrowWriter):
    """The writer for `rows.write`: appends, or replaces the rows of the table."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._writing = TableWriting(options, arrow_columns(schema), overwrite)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._writing.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writing.commit(messages, self._writing.options.version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writing.abort(messages)


class DeltaStreamWriter(StreamArrowWriter):
    """The writer for `rows.writeStream`: each batch is one commit; in mode complete it replaces all rows."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._writing = TableWriting(options, arrow_columns(schema), overwrite)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._writing.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writing.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writing.abort(messages)


@dataclass(frozen=True, slots=True)
class TableWriting:
    """The state of a write. Sent to the tasks."""

    options: TableOptions
    schema: pa.Schema
    overwrite: bool = False

    def write(self, batches: Iterator[pa.RecordBatch]) -> FilesWritten:
        files = TableFiles.open(self.options)
        written: list[WrittenFile] = []
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if sum(one.num_rows for one in waiting) >= ROWS_PER_FILE:
                written += self._write_files(files, waiting)
                waiting = []
        query = streaming_batch()
        return FilesWritten((*written, *self._write_files(files, waiting)), query[0] if query else None)

    def commit(self, messages: Sequence[object], version: int | None) -> None:
        """Commit the files; `version` is the writer's own count, None if it has none."""
        added = _files_of(messages)
        table = self._table()
        app_id = self._app_id(messages)
        if version is not None and app_id:
            last = table.transaction_version(app_id)
            if last is not None and last >= version:
                self._delete(added)
                return
        if not added and not self.overwrite:
            return
        marks = [Transaction(app_id, version)] if version is not None and app_id else None
        table.create_write_transaction(
            [_action(one) for one in added],
            "overwrite" if self.overwrite else "append",
            table.schema(),
            list(table.metadata().partition_columns),
            commit_properties=CommitProperties(app_transactions=marks),
        )

    def abort(self, messages: Sequence[object]) -> None:
        """Delete what was written, unless a commit was attempted: one that raised may have arrived anyway."""
        if any(one is None for one in messages):
            self._delete(_files_of(messages))

    def _app_id(self, messages: Sequence[object]) -> str:
        """The id of the writer: from the options, or of the query; empty if there is neither."""
        queries = (one.query_id for one in messages if isinstance(one, FilesWritten) and one.query_id)
        query_id = next(queries, None)
        return self.options.app_id or (f"headrace-{query_id}" if query_id else "")

    def _delete(self, written: Sequence[WrittenFile]) -> None:
        files = TableFiles.open(self.options)
        for one in written:
            files.delete(one.path)

    def _table(self) -> DeltaTable:
        """The table, created if it is missing; its columns must be those of the rows."""
        table = find_table(self.options)
        if table is None:
            missing = [name for name in self.options.partition_by if name not in self.schema.names]
            if missing:
                raise SourceError(f"partitionBy names {missing[0]}, but there is no such column")
            table = DeltaTable.create(
                self.options.path,
                Schema.from_arrow(self.schema),
                mode="ignore",
                partition_by=list(self.options.partition_by) or None,
                storage_options=dict(self.options.storage) or None,
            )
        there = {one.name: one.type for one in arrow_schema(table)}
        ours = {one.name: one.type for one in arrow_schema_of(Schema.from_arrow(self.schema))}
        if there != ours:
            differing = sorted(name for name in {*there, *ours} if there.get(name) != ours.get(name))
            name = differing[0]
            raise SourceError(
                f"the column {name} is {ours.get(name, 'not there')} in the rows and "
                f"{there.get(name, 'not there')} in the Delta table {self.options.path}: cast or rename it"
            )
        return table

    def _write_files(self, files: TableFiles, batches: list[pa.RecordBatch]) -> list[WrittenFile]:
        rows = pa.Table.from_batches(batches).cast(self.schema) if batches else self.schema.empty_table()
        if not rows.num_rows:
            return []
        partition_by = self._partition_by()
        return [
            self._write_file(files, values, part.select([n for n in part.column_names if n not in partition_by]))
            for values, part in _split(rows, partition_by)
        ]

    def _partition_by(self) -> tuple[str, ...]:
        table = find_table(self.options)
        return self.options.partition_by if table is None else tuple(table.metadata().partition_columns)

    def _write_file(self, files: TableFiles, values: Mapping[str, str | None], rows: pa.Table) -> WrittenFile:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        path = f"part-{uuid.uuid4()}.parquet"  # the values of partitions are in the log, and need no folders
        files.write(path, data)
        return WrittenFile(path, len(data), rows.num_rows, dict(values))


def arrow_schema_of(schema: Schema) -> pa.Schema:
    return pa.schema(schema.to_arrow())


def _files_of(messages: Sequence[object]) -> list[WrittenFile]:
    return [file for one in messages if isinstance(one, FilesWritten) for file in one.files]


def _action(one: WrittenFile) -> AddAction:
    stats = json.dumps({"numRecords": one.rows})
    return AddAction(one.path, one.size, one.partition_values, int(time.time() * 1000), True, stats)


def _split(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each combination of values, with the values as Delta writes them."""
    if not columns:
        yield {}, rows
        return
    name, *more = columns
    if rows.schema.field(name).type == pa.binary():
        raise SourceError(f"partitionBy names {name}, which is binary: cast it to a string")
    numbers = rows.column(name).combine_chunks().dictionary_encode()  # values are not compared: NaN, 0.0 and -0.0
    parts: list[tuple[str | None, pa.Array]] = [
        (_spelled(value), pc.equal(numbers.indices, n)) for n, value in enumerate(numbers.dictionary)
    ]
    if numbers.null_count:
        parts.append((None, pc.is_null(numbers)))
    for spelled, mask in parts:
        for values, part in _split(rows.filter(mask), more):
            yield {name: spelled, **values}, part


def _spelled(value: pa.Scalar) -> str:
    found = value.as_py()
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, float) and not math.isfinite(found):
        return "NaN" if math.isnan(found) else ("Infinity" if found > 0 else "-Infinity")
    if isinstance(found, datetime):
        zone = "" if found.tzinfo is None else "Z"
        return found.replace(tzinfo=None).isoformat("T" if zone else " ", "microseconds") + zone
    return str(found)

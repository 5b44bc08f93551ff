"""A Delta table read by Spark: as it is now, or as a stream of the rows that are added.

A stream's offset is a version of the table. The first batch is all rows of the version at the start (or, with
`startingVersion`, nothing before that one); each later one has the files that the commits since then added. A
commit that removed or changed rows ends the stream, since those cannot be taken back; compaction of files does not
count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.spark.delta.files import TableFiles
from headrace.spark.delta.table import TableOptions, arrow_columns, open_table
from headrace.spark.errors import SourceError

VERSION = "version"
NOTHING_YET = -1
ROWS_PER_BATCH = 50_000


@dataclass(frozen=True)
class FileTask(InputPartition):
    """One file, with the values that are in its folder's name instead of the file."""

    path: str
    values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class FileReading:
    options: TableOptions
    schema: pa.Schema

    def read(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(task, FileTask):
            return
        inside = [name for name in self.schema.names if name not in task.values]
        rows = TableFiles.open(self.options).read(task.path, inside)
        columns = [
            _constant(task.values[one.name], rows.num_rows, one.type)
            if one.name in task.values
            else rows.column(one.name).combine_chunks().cast(one.type)
            for one in self.schema
        ]
        table = pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=self.schema)])
        yield from table.to_batches(max_chunksize=ROWS_PER_BATCH)


class DeltaReader(DataSourceReader):
    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._reading = FileReading(options, arrow_columns(schema))

    def partitions(self) -> Sequence[InputPartition]:
        return snapshot(self._options, None)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition)


class DeltaStreamReader(DataSourceStreamReader):
    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._reading = FileReading(options, arrow_columns(schema))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        starting = self._options.starting_version
        return {VERSION: NOTHING_YET if starting is None else starting - 1}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        return {VERSION: open_table(self._options).version()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = int(start[VERSION]), int(end[VERSION])
        if first == NOTHING_YET and self._options.starting_version is None:
            return snapshot(self._options, last)
        return [one for version in range(first + 1, last + 1) for one in added(self._options, version)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition)


def snapshot(options: TableOptions, version: int | None) -> list[FileTask]:
    """All files of a version, or of the newest one for None."""
    actions = pa.table(open_table(options, version).get_add_actions())
    paths = actions.column("path").to_pylist()
    values = actions.column("partition").to_pylist() if "partition" in actions.column_names else [{}] * len(paths)
    return [FileTask(unquote(path), _texts(value)) for path, value in zip(paths, values, strict=True)]


def added(options: TableOptions, version: int) -> list[FileTask]:
    """The files that a commit added, from the table's log."""
    text = TableFiles.open(options).text(f"_delta_log/{version:020}.json")
    if text is None:
        raise SourceError(
            f"version {version} is no longer in the log of the Delta table {options.path}: start with another "
            "checkpoint, which reads the whole table first"
        )
    found: list[FileTask] = []
    for line in text.splitlines():
        action = json.loads(line)
        if action.get("remove", {}).get("dataChange"):
            raise SourceError(
                f"version {version} of the Delta table {options.path} removes or changes rows, and a stream only "
                "knows rows that are added"
            )
        add = action.get("add")
        if add and add.get("dataChange"):
            found.append(FileTask(unquote(add["path"]), _texts(add.get("partitionValues") or {})))
    return found


def _texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: None if value in (None, "") else str(value) for name, value in (values or {}).items()}


def _constant(value: str | None, count: int, kind: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind)
    if kind == pa.timestamp("us", tz="UTC"):
        one = datetime.fromisoformat(value)  # in UTC if it names no zone
        found = pa.array([one if one.tzinfo else one.replace(tzinfo=UTC)], kind)
    else:
        found = pa.array([value], pa.string()).cast(kind)
    return found.take(pa.array([0] * count, pa.int64()))

"""The writers that Spark calls. All that can be is checked while it plans.

At least once: a task says that it is done when every record is acknowledged, so nothing is lost. A task that Spark
runs again, or a batch of a stream that it repeats after a restart, writes its records again; the producer's own
retries write none twice. `commit` and `abort` have nothing left to do.

In a stream the cluster is not asked while planning: that happens for every batch, and a broker that restarts just
then must not end the query. The tasks wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.spark.client.cluster import shared_cluster
from headrace.spark.compat import HAS_STREAM_ARROW_WRITER, StreamArrowWriter
from headrace.spark.sink.columns import SinkColumns, sink_columns
from headrace.spark.sink.errors import SinkError, sink_errors
from headrace.spark.sink.options import BOOTSTRAP, SinkOptions, parse_sink_options
from headrace.spark.sink.rows import batches_of_rows
from headrace.spark.sink.task import Written, partition_count, write_rows
from headrace.spark.worker import settle_worker


@dataclass(frozen=True)
class Acknowledged(WriterCommitMessage):
    """What a task tells the driver."""

    written: Written


class BatchWriter(DataSourceArrowWriter):
    """For `df.write`: gets Arrow batches."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, self._columns, iterator)


class StreamWriter(StreamArrowWriter):
    """For `df.writeStream`: gets Arrow batches."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, self._columns, iterator)


class RowStreamWriter(DataSourceStreamWriter):
    """For PySpark 4.0, whose streams give rows only."""

    def __init__(self, options: SinkOptions, columns: SinkColumns, schema: StructType) -> None:
        self._options = options
        self._columns = columns
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, self._columns, batches_of_rows(iterator, self._schema))


def _write(options: SinkOptions, columns: SinkColumns, batches: Iterator[pa.RecordBatch]) -> Acknowledged:
    with sink_errors(options.client.bootstrap):
        return Acknowledged(write_rows(options, columns, batches))


def make_batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """For `df.write`; SinkError when it cannot work."""
    if overwrite:
        raise SinkError("records of a topic cannot be overwritten: write with mode('append')")
    options, columns = _checked(given, schema)
    if options.topic is not None and options.create is None:
        with sink_errors(options.client.bootstrap):
            partition_count(shared_cluster(options.client), options.topic)
    return BatchWriter(options, columns)


def make_stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """For `df.writeStream`; SinkError when it cannot work.

    `overwrite` comes with the output mode complete: each batch then holds the whole result, and is appended, as by
    Spark's own sink. A compacted topic keeps the latest of each key.
    """
    options, columns = _checked(given, schema)
    if HAS_STREAM_ARROW_WRITER:
        return StreamWriter(options, columns)
    return RowStreamWriter(options, columns, schema)


def _checked(given: Mapping[str, str], schema: StructType) -> tuple[SinkOptions, SinkColumns]:
    bootstrap = {name.lower(): value for name, value in given.items()}.get(BOOTSTRAP, "")
    with sink_errors(bootstrap):
        options = parse_sink_options(given)
    columns = sink_columns(schema, options)
    settle_worker()  # the one that plans, which is used again for the next batch
    return options, columns

"""The writers that Spark calls. All that can be is checked while it plans.

Exactly once, the default in a stream to a cluster that can prepare transactions: `once/` has the protocol. A batch
is planned when Spark pickles its writer for the tasks, written by them in transactions that stay open, and decided
in `commit`.

At least once: a task says that it is done when every record is acknowledged, so nothing is lost. A task that Spark
runs again, or a batch of a stream that it repeats after a restart, writes its records again; the producer's own
retries write none twice. `commit` and `abort` have nothing left to do.

In a stream the topic is not asked for while planning: that happens for every batch, and a broker that restarts
just then must not end the query. The tasks wait for it, and so does the plan of a batch.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.spark.client.cluster import shared_cluster
from headrace.spark.compat import HAS_STREAM_ARROW_WRITER, StreamArrowWriter, streaming_batch
from headrace.spark.sink.columns import SinkColumns, sink_columns
from headrace.spark.sink.errors import SinkError, sink_errors
from headrace.spark.sink.jobs import JobWriter
from headrace.spark.sink.once.decisions import Batch
from headrace.spark.sink.once.driver import abort_batch, commit_batch, plan_batch
from headrace.spark.sink.once.messages import TaskDone
from headrace.spark.sink.once.plan import Plan
from headrace.spark.sink.once.task import TaskIdentity, write_once
from headrace.spark.sink.options import AT_LEAST_ONCE, BOOTSTRAP, EXACTLY_ONCE, SinkOptions, parse_sink_options
from headrace.spark.sink.rows import batches_of_rows
from headrace.spark.sink.task import TaskWriter, Written, partition_count, task_cluster, write_rows
from headrace.spark.worker import settle_worker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Acknowledged(WriterCommitMessage):
    """What a task reports to the driver."""

    written: Written


class BatchWriter(DataSourceArrowWriter):
    """The writer for `df.write`: gets Arrow batches."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, self._columns, iterator)


class StreamWriting:
    """The common part of both kinds of stream writers. One is made to plan a batch, and pickled for its tasks;
    another in the process that commits or aborts it."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._plan: Plan | None = None
        self._planned = False

    def __getstate__(self) -> dict[str, Any]:
        """Plan the batch, once. Spark pickles a writer for its tasks, twice, and no other: now is the time."""
        if not self._planned:
            with sink_errors(self._options.client.bootstrap):
                self._plan = plan_stream_batch(self._options)
            self._planned = True
            settle_worker()
        return self.__dict__

    def _write_batches(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._plan is None:
            return _write(self._options, self._columns, batches)
        with sink_errors(self._options.client.bootstrap):
            return write_stream_task(self._options, self._columns, batches, self._plan)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with sink_errors(self._options.client.bootstrap):
            commit_batch(
                task_cluster(self._options), messages, batchId, patience_s=self._options.delivery_timeout_s
            )
        settle_worker()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with sink_errors(self._options.client.bootstrap):
            abort_batch(
                task_cluster(self._options), messages, batchId, patience_s=self._options.delivery_timeout_s
            )
        settle_worker()


class StreamWriter(StreamWriting, StreamArrowWriter):
    """The writer for `df.writeStream`: gets Arrow batches."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._write_batches(iterator)


class RowStreamWriter(StreamWriting, DataSourceStreamWriter):
    """The writer for PySpark 4.0, whose streams only provide rows."""

    def __init__(self, options: SinkOptions, columns: SinkColumns, schema: StructType) -> None:
        super().__init__(options, columns)
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._write_batches(batches_of_rows(iterator, self._schema))


def plan_stream_batch(options: SinkOptions) -> Plan | None:
    """The plan of a batch; None if it is written at least once."""
    if options.sink is None:
        return None
    explicit = options.delivery == EXACTLY_ONCE
    plan = plan_batch(task_cluster(options), options.sink, options.delivery_timeout_s, needs_prepare=not explicit)
    if plan is not None and not plan.two_phase:
        _warn_of_window(options.client.bootstrap, options.sink.timeout_ms)
    return plan


@functools.cache
def _warn_of_window(bootstrap: str, timeout_ms: int) -> None:
    log.warning(
        "The cluster at %s cannot prepare transactions (KIP-939): exactly once holds only if a batch is committed "
        "within %g s of its first record (kafka.transaction.timeout.ms). If its driver dies after the decision "
        "and is not back by then, the cluster aborts what was decided, and the query ends with an error.",
        *(bootstrap, timeout_ms / 1000),
    )


def write_stream_task(
    options: SinkOptions, columns: SinkColumns, batches: Iterator[pa.RecordBatch], plan: Plan
) -> TaskDone:
    writer = TaskWriter(options, columns, task_cluster(options))
    try:
        return write_once(writer, batches, plan, task_identity(), options.delivery_timeout_s)
    finally:
        writer.close()
        settle_worker()


def task_identity() -> TaskIdentity:
    """The identity of the task that runs in this process, which belongs to a batch of a stream."""
    batch = streaming_batch()
    context = TaskContext.get()
    assert batch is not None
    assert context is not None
    return TaskIdentity(Batch(*batch), context.partitionId(), context.attemptNumber())


def _write(options: SinkOptions, columns: SinkColumns, batches: Iterator[pa.RecordBatch]) -> Acknowledged:
    with sink_errors(options.client.bootstrap):
        return Acknowledged(write_rows(options, columns, batches))


def make_batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """The writer for `df.write`; SinkError if it cannot work."""
    if overwrite:
        raise SinkError("records of a topic cannot be overwritten: write with mode('append')")
    options, columns = _checked(given, schema)
    if options.delivery == EXACTLY_ONCE and options.job is None:
        raise SinkError(f"delivery={EXACTLY_ONCE} of a batch write needs a name for it: set the option jobId")
    if options.topic is not None and options.create is None:
        with sink_errors(options.client.bootstrap):
            partition_count(shared_cluster(options.client), options.topic)
    if options.job is not None and options.sink is not None:
        return JobWriter(options, columns, options.job, options.sink)
    return BatchWriter(options, columns)


def make_stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """The writer for `df.writeStream`; SinkError if it cannot work.

    `overwrite` comes with the output mode complete: each batch then holds the whole result, and is appended, as by
    Spark's own sink. A compacted topic keeps the latest of each key.
    """
    options, columns = _checked(given, schema)
    if options.job is not None:
        raise SinkError("jobId is for batch writes: a stream has the option sinkId")
    if options.sink is None and options.delivery != AT_LEAST_ONCE:
        raise SinkError(
            "exactly once needs a permanent name for the sink: set checkpointLocation on this query, or the "
            f"option sinkId; or write with delivery={AT_LEAST_ONCE}"
        )
    if HAS_STREAM_ARROW_WRITER:
        return StreamWriter(options, columns)
    return RowStreamWriter(options, columns, schema)


def _checked(given: Mapping[str, str], schema: StructType) -> tuple[SinkOptions, SinkColumns]:
    bootstrap = {name.lower(): value for name, value in given.items()}.get(BOOTSTRAP, "")
    with sink_errors(bootstrap):
        options = parse_sink_options(given)
    columns = sink_columns(schema, options)
    settle_worker()  # the worker that plans, which is used again for the next batch
    return options, columns

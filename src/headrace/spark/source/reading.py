"""Tasks: reads one range of offsets in an executor, as Arrow batches.

Connections are kept per process (`shared_cluster`): Spark uses its Python workers again for the next task.

What a task finds missing (retention was faster, the topic is gone or shorter) is data loss. With `failOnDataLoss`
it fails the query; without, the task continues after the gap and logs it.

A range with an open end belongs to a batch read up to `latest`. In a plain query it ends where it was planned to,
so that all tasks agree. In a stream joined with a table, Spark plans the table once and runs the tasks in every
batch: there the end is looked up by the task, so that the table follows its topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import parse_header
from headrace.spark.client.cluster import BlockingCluster, shared_cluster
from headrace.spark.client.connection import ClusterSettings
from headrace.spark.client.fetching import Chunk, RangeUnavailable, read_chunks
from headrace.spark.compat import in_streaming_query
from headrace.spark.errors import SourceError, explained
from headrace.spark.source.exact_times import ExactTimes
from headrace.spark.source.observing import client_settings, find_bounds
from headrace.spark.source.options import SourceOptions
from headrace.spark.worker import settle_worker

if TYPE_CHECKING:
    import pyarrow as pa

LOST = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
MAX_GAPS = 100
ADVICE = "Set failOnDataLoss to false to continue without these records."

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """One range of one partition; pickled from the driver to the executor."""

    partition: TopicPartition
    start: int
    end: int
    from_earliest: bool = False
    """The start means the beginning of the log, wherever that is when the task runs."""
    open_end: bool = False
    """The end means the end of the log: where it was planned, or in a streaming query where it is by then."""
    watermark_ms: int | None = None
    """Rows not after it are late in this batch; None: nobody asked, see `batch_watermark`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the tasks of a reader share."""

    settings: ClusterSettings
    columns: tuple[str, ...]
    isolation: int
    fail_on_data_loss: bool
    max_bytes: int
    wait_ms: int
    exact_times: ExactTimes | None = None

    def read(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(task, ReadTask):
            return  # Spark's stand-in for "no partitions"
        with explained(self.settings.bootstrap):
            cluster = shared_cluster(self.settings)
            start, end = self._resolve(cluster, task)
            if start < end:
                chunks = self._chunks(cluster, task.partition, start, end)
                yield from self._decoded(chunks, task.partition, start, end)
        settle_worker()

    def _decoded(
        self, chunks: Iterator[Chunk], partition: TopicPartition, start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        from headrace.spark.arrow.columns import TIMESTAMP
        from headrace.spark.arrow.decode import decode

        if self.exact_times is None:
            yield from decode(chunks, self.columns, partition, start, end)
            return
        columns = self.columns if TIMESTAMP in self.columns else (*self.columns, TIMESTAMP)
        for rows in decode(chunks, columns, partition, start, end):
            yield self.exact_times.kept(rows, TIMESTAMP, partition).select(list(self.columns))

    def _resolve(self, cluster: BlockingCluster, task: ReadTask) -> tuple[int, int]:
        follows = task.open_end and in_streaming_query()
        if not (follows or task.from_earliest):
            return task.start, task.end
        bounds = find_bounds(cluster, [task.partition], self.isolation)[task.partition]
        start = max(task.start, bounds.log_start) if task.from_earliest else task.start
        return start, bounds.log_end if follows else task.end

    def _chunks(
        self, cluster: BlockingCluster, partition: TopicPartition, start: int, end: int
    ) -> Iterator[Chunk]:
        """The chunks of the range, with what is missing left out if that is wanted."""
        position = start
        for _ in range(MAX_GAPS):
            last: Chunk | None = None
            try:
                for last in read_chunks(
                    cluster,
                    partition,
                    position,
                    end,
                    isolation=self.isolation,
                    max_bytes=self.max_bytes,
                    wait_ms=self.wait_ms,
                ):
                    yield last
                return
            except RangeUnavailable as gone:
                self._lose(f"{gone}.")
                return
            except KafkaError as error:
                if error.code not in LOST:
                    raise
                reached = position if last is None else _offset_after(last)
                position = self._after_gap(cluster, partition, reached, end, error)
            if position >= end:
                return
        raise SourceError(f"partition {partition} loses records faster than they can be read.")

    def _after_gap(
        self, cluster: BlockingCluster, partition: TopicPartition, position: int, end: int, error: KafkaError
    ) -> int:
        """Where to continue: at the start of the log if that has overtaken us; otherwise nothing is left."""
        what = f"offsets {position} to {end - 1} of partition {partition} were to be read"
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._lose(f"{what}, but it does not exist any more.")
            return end
        bounds = find_bounds(cluster, [partition], self.isolation)[partition]
        self._lose(f"{what}, but it holds offsets {bounds.log_start} to {bounds.log_end - 1} now.")
        return min(bounds.log_start, end) if bounds.log_start > position else end

    def _lose(self, what: str) -> None:
        if self.fail_on_data_loss:
            raise SourceError(f"Records are lost: {what} {ADVICE}")
        log.warning("Records are lost: %s", what)


def reading_of(options: SourceOptions, columns: tuple[str, ...]) -> Reading:
    return Reading(
        # The driver has reached the cluster, so a broker that is down now will come back.
        settings=client_settings(options, patient=True),
        columns=columns,
        isolation=int(options.isolation),
        fail_on_data_loss=options.fail_on_data_loss,
        max_bytes=options.fetch_max_bytes,
        wait_ms=options.poll_timeout_ms,
        exact_times=options.exact_times,
    )


def _offset_after(chunk: Chunk) -> int:
    position, after = 0, chunk.start
    while position < len(chunk.data):
        header = parse_header(chunk.data, position)
        position, after = position + header.size, header.next_offset
    return after

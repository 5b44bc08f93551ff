"""What one task does with its rows: topic, partition, record batches, acknowledgements.

Rows of a task keep their order within a partition. Rows without a key and a partition go together, Arrow batch by
Arrow batch, to one partition after the other, beginning anywhere. Nothing is opened before the first row: a task
without rows costs nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.client.buffers import ReusedBuffers
from headrace.model.topics import TopicPartition
from headrace.spark.arrow import columns as c
from headrace.spark.arrow.encode import EncodableRows, encodable, encode
from headrace.spark.arrow.layout import Numbers
from headrace.spark.arrow.partitions import assign_partitions, rows_by_partition
from headrace.spark.client.cluster import BlockingCluster, shared_cluster
from headrace.spark.client.creating import ensure_topic
from headrace.spark.client.producing import MOST_BUFFERS, BatchProducer
from headrace.spark.client.transactions import InTransaction
from headrace.spark.sink.columns import SinkColumns
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.options import SinkOptions
from headrace.spark.worker import settle_worker

NO_PARTITION = -1


@dataclass(frozen=True, slots=True)
class Written:
    """What a task has written, acknowledged."""

    rows: int = 0
    batches: int = 0
    bytes: int = 0


def write_rows(options: SinkOptions, columns: SinkColumns, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write all rows and wait until they are acknowledged."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Written()
    writer = TaskWriter(options, columns, task_cluster(options))
    try:
        writer.write(first)
        for batch in filled:
            writer.write(batch)
        return writer.finish()
    finally:
        writer.close()
        settle_worker()


def task_cluster(options: SinkOptions) -> BlockingCluster:
    return shared_cluster(replace(options.client, patient=True))


class TaskWriter:
    def __init__(self, options: SinkOptions, columns: SinkColumns, cluster: BlockingCluster) -> None:
        self._options = options
        self._columns = columns
        self.cluster = cluster
        self._producer = BatchProducer(
            cluster,
            acks=options.acks,
            idempotent=options.idempotent,
            max_in_flight=options.max_in_flight,
            delivery_timeout_s=options.delivery_timeout_s,
            max_request_bytes=options.request_bytes,
        )
        self._memory = ReusedBuffers(MOST_BUFFERS)
        self._partition_counts: dict[str, int] = {}
        self._unkeyed: dict[str, int] = {}
        self._rows = self._batches = self._bytes = 0

    def begin(self, transaction: InTransaction) -> None:
        """All rows belong to this transaction. Before the first of them."""
        self._producer.begin(transaction)

    def write(self, rows: pa.RecordBatch) -> None:
        chosen = self._columns.chosen(rows)
        ready = encodable(chosen)
        for topic, indices in self._by_topic(chosen):
            mine = chosen if indices is None else chosen.take(indices)
            found = [
                (TopicPartition(topic, partition), rows_there)
                for partition, rows_there in rows_by_partition(self._partitions(mine, topic))
            ]
            self._producer.announce([place for place, _ in found])
            for place, rows_there in found:
                self._send(place, ready, rows_there if indices is None else indices[rows_there])

    def finish(self) -> Written:
        self._producer.flush()
        return Written(self._rows, self._batches, self._bytes)

    def close(self) -> None:
        self._producer.close()

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, Numbers | None]]:
        """Each topic with its rows; None means all of them."""
        if self._options.topic is not None:
            yield self._options.topic, None
            return
        column = rows.column(c.TOPIC)
        if column.null_count:
            raise SinkError(
                "a row has a null in the column 'topic': fill or filter it, or set the option topic for all rows"
            )
        encoded = column.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        numbers = encoded.indices.to_numpy()
        for number, name in enumerate(names):
            yield name, np.flatnonzero(numbers == number) if len(names) > 1 else None

    def _partition_count(self, topic: str) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            if self._options.create is not None:
                ensure_topic(self.cluster, topic, self._options.create)
            count = self._partition_counts[topic] = partition_count(self.cluster, topic)
            self._unkeyed[topic] = random.randrange(count)
        return count

    def _partitions(self, rows: pa.RecordBatch, topic: str) -> NDArray[np.int32]:
        """The partition of each row, all of which go to this topic."""
        count = self._partition_count(topic)
        unkeyed = self._unkeyed[topic] = (self._unkeyed[topic] + 1) % count
        if c.KEY in self._columns:
            places = assign_partitions(rows.column(c.KEY), count, unkeyed)
        else:
            places = np.full(rows.num_rows, unkeyed, np.int32)
        if c.PARTITION in self._columns:
            column = rows.column(c.PARTITION).cast(pa.int32())
            given = column.fill_null(NO_PARTITION).to_numpy(zero_copy_only=False)
            _check_partitions(column, given, topic, count)
            places = np.where(given == NO_PARTITION, places, given).astype(np.int32)
        return places

    def _send(self, partition: TopicPartition, rows: EncodableRows, indices: Numbers) -> None:
        limit = self._options.batch_bytes
        accepted = self._producer.accepted_bytes(partition.topic)
        now_ms = int(time.time() * 1000)
        for encoded in encode(
            rows,
            indices,
            codec=self._options.codec,
            now_ms=now_ms,
            max_batch_bytes=limit if accepted is None else min(limit, accepted),
            take=self._memory.take,
        ):
            self._rows += encoded.record_count
            self._batches += 1
            self._bytes += len(encoded.batch)
            self._producer.send(partition, encoded.batch, encoded.record_count)


def partition_count(cluster: BlockingCluster, topic: str) -> int:
    """How many partitions a topic has; SinkError when there is no such topic."""
    found = cluster.topics([topic]).get(topic)
    if found is None:
        raise SinkError(
            f"the topic {topic!r} does not exist on {cluster.settings.bootstrap}: "
            f"create it first, as with headrace topic create {topic}"
        )
    return found.partition_count


def _check_partitions(column: pa.Array, given: NDArray[np.int32], topic: str, count: int) -> None:
    """A null is -1 here, and fine; a -1 that somebody gave is not."""
    wrong = (given >= count) | (given < NO_PARTITION)
    negative = int((given == NO_PARTITION).sum()) > column.null_count
    if negative or wrong.any():
        value = int(given[np.flatnonzero(wrong)[0]]) if wrong.any() else NO_PARTITION
        raise SinkError(
            f"the column 'partition' has {value}, but topic {topic!r} has the partitions 0 to {count - 1}: "
            "correct it, or leave it null to go by the key"
        )

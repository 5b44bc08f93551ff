"""Puts archived records back into a topic, once, with their keys, values, headers and timestamps.

Records are read range by range in the order in which they were archived, those of a range in the order of their
offsets, and written in transactions, each with the position that it reaches (`replay_position`). A killed replay
leaves an open transaction. The next start aborts it, and continues after the last one that was committed. The
archive may have grown in the meantime, because ranges are only added at the end.

A replay has a name, by default one made of the archive, the slice and the destination: the same command continues
where it stopped, and once it is done it writes nothing more.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.buffers import ReusedBuffers, Take
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.compression import Codec
from headrace.spark.archive import manifest as m
from headrace.spark.archive.asking import topic_settings
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.archive.reading import rows_of_range
from headrace.spark.archive.replay_position import ReplayPosition
from headrace.spark.archive.slices import Slice
from headrace.spark.archive.store import ArchiveStore
from headrace.spark.arrow import columns as c
from headrace.spark.arrow.encode import encodable, encode
from headrace.spark.arrow.partitions import assign_partitions, rows_by_partition
from headrace.spark.client.cluster import BlockingCluster
from headrace.spark.client.creating import TopicShape, ensure_topic
from headrace.spark.client.producing import MOST_BUFFERS, BatchProducer
from headrace.spark.client.transactions import LOST, InTransaction, TransactionClient

PREFIX = "headrace.replay."
OFFSET_HEADER = "headrace.offset"
PARTITION_HEADER = "headrace.partition"
ROWS_PER_TRANSACTION = 50_000
BYTES_PER_TRANSACTION = 32 * 1024 * 1024
TRANSACTION_TIMEOUT_MS = 60_000
NAME_DIGITS = 20
BATCH_BYTES = 900_000
TIMESTAMP_TYPE = "message.timestamp.type"
CREATE_TIME = "CreateTime"
KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    slice: Slice
    destination: str
    by_key: bool = False
    """Whether keys choose the partitions; else a record goes to the partition it came from."""
    offset_header: bool = False
    restore: bool = False
    """Whether a topic that is created for it keeps all records, however old they are."""
    job: str = ""
    codec: Codec = Codec.NONE

    def fingerprint(self, archive_id: str, destination_id: str) -> str:
        """A hash that differs for every replay that writes other records, or to another topic."""
        where = f"{self.destination} {destination_id} {self.by_key} {self.offset_header}"
        return hashlib.sha256(f"{archive_id} {self.slice.spelled()} {where}".encode()).hexdigest()


@dataclass(slots=True)
class ReplayProgress:
    total: int = 0
    """The archived rows of the topic."""
    passed: int = 0
    """The rows among them that are done, including those of earlier runs."""
    written: int = 0
    """Records that this run has committed."""
    was_done: bool = False
    """Whether an earlier run did it all: nothing was left."""


class Replay:
    def __init__(self, store: ArchiveStore, cluster: BlockingCluster, plan: ReplayPlan) -> None:
        self._store = store
        self._cluster = cluster
        self._plan = plan
        self._manifest = m.load(store)
        if plan.slice.topic not in self._manifest.topics:
            there = ", ".join(sorted(self._manifest.topics))
            raise ArchiveError(
                f"Topic {plan.slice.topic} is not in the archive.",
                f"It has: {there}." if there else "It is still empty: fill it with `headrace archive run`.",
            )
        self._ranges = self._manifest.of(plan.slice.topic)
        count = self._manifest.topics[plan.slice.topic].partitions
        if missing := [number for number in plan.slice.partitions if number >= count]:
            raise ArchiveError(
                f"Topic {plan.slice.topic} had no partition {missing[0]} when it was archived.",
                f"It had {count}, from 0 on.",
            )
        self._fingerprint = self._name = ""
        self._partitions = 0
        self._transactions = TransactionClient(cluster)
        self.progress = ReplayProgress(total=sum(one.rows for one in self._ranges))

    def count(self) -> int:
        """Count the records of the slice, without writing any."""
        choose = self._plan.slice.chooser()
        count = sum(
            choose(rows_of_range(self._store, one)).num_rows
            for one in self._ranges
            if self._plan.slice.may_have(one)
        )
        choose.refuse_unknown_fields()
        return count

    def prepare(self) -> list[str]:
        """Create the destination if it does not exist, or check it; returns warnings."""
        archived = self._manifest.topics[self._plan.slice.topic]
        settings = {name: value for name, value in archived.settings.items() if name != TIMESTAMP_TYPE}
        if self._plan.restore:
            settings |= KEPT_FOR_EVER
        ensure_topic(
            self._cluster,
            self._plan.destination,
            TopicShape(archived.partitions, config=tuple(sorted(settings.items()))),
        )
        made = self._cluster.topics([self._plan.destination])[self._plan.destination]
        self._partitions = made.partition_count
        self._fingerprint = self._plan.fingerprint(self._manifest.description.id, made.topic_id)
        self._name = PREFIX + (self._plan.job or self._fingerprint[:NAME_DIGITS])
        highest = max((one.partition for one in self._ranges if self._plan.slice.may_have(one)), default=-1)
        if not self._plan.by_key and highest >= self._partitions:
            raise ArchiveError(
                f"{self._plan.destination} has {self._partitions} partitions, but there are records of {highest}.",
                "Add partitions with `headrace topic add-partitions`, or choose them by key with --repartition.",
            )
        return self._warnings()

    def run(self, told: Callable[[ReplayProgress], None] = lambda _: None) -> ReplayProgress:
        """Write the records. Call `prepare` first."""
        try:
            return self._run(told)
        except KafkaError as error:
            if error.code in LOST:
                raise taken_over() from None
            raise

    def _run(self, told: Callable[[ReplayProgress], None]) -> ReplayProgress:
        transaction = self._begin()  # from here on another process with the same replay is fenced
        position = self._stored()
        self.progress.passed = position
        self.progress.was_done = position >= self.progress.total
        for reached, rows in self._portions(position):
            if position != self.progress.passed:  # not the first
                transaction = self._begin()
                if self._stored() != self.progress.passed:
                    raise taken_over()
            self._write(transaction, rows, reached)
            self.progress.passed = reached
            self.progress.written += sum(one.num_rows for one in rows)
            told(self.progress)
        return self.progress

    def _position(self) -> ReplayPosition:
        return ReplayPosition(self._cluster, self._name, self._plan.destination)

    def _begin(self) -> InTransaction:
        return InTransaction(self._name, self._transactions.begin(self._name, TRANSACTION_TIMEOUT_MS).identity)

    def _stored(self) -> int:
        found = self._position().stored()
        if found is None:
            return 0
        if found[1] != self._fingerprint:
            raise ArchiveError(
                f"The replay {self._name.removeprefix(PREFIX)} was started with another slice or destination.",
                "Give this one another --job.",
            )
        return found[0]

    def _portions(self, position: int) -> Iterator[tuple[int, list[pa.Table]]]:
        """The records of each transaction, with the position after it."""
        choose = self._plan.slice.chooser()
        waiting: list[pa.Table] = []
        count = size = 0
        reached = begin = 0
        for one in self._ranges:
            begin, reached = reached, reached + one.rows
            if reached <= position or not self._plan.slice.may_have(one):
                continue
            rows = rows_of_range(self._store, one)
            step = max(1, min(ROWS_PER_TRANSACTION, rows.num_rows * BYTES_PER_TRANSACTION // max(rows.nbytes, 1)))
            for first in range(max(0, position - begin), rows.num_rows, step):
                chosen = choose(rows.slice(first, step))
                waiting.append(chosen)
                count, size = count + chosen.num_rows, size + chosen.nbytes
                if count >= ROWS_PER_TRANSACTION or size >= BYTES_PER_TRANSACTION:
                    yield min(begin + first + step, reached), waiting
                    waiting, count, size = [], 0, 0
        if position == 0:  # otherwise an earlier run may have found them
            choose.refuse_unknown_fields()
        if reached > position:
            yield reached, waiting

    def _write(self, transaction: InTransaction, rows: list[pa.Table], reached: int) -> None:
        producer, memory = BatchProducer(self._cluster), ReusedBuffers(MOST_BUFFERS)
        producer.begin(transaction)
        try:
            for table in rows:
                for batch in table.combine_chunks().to_batches():
                    self._send(producer, batch, memory.take)
            self._position().store(transaction, reached, self._fingerprint)
            producer.flush()
        finally:
            producer.close()
        self._transactions.end(transaction.transactional_id, transaction.identity, commit=True)

    def _send(self, producer: BatchProducer, rows: pa.RecordBatch, take: Take) -> None:
        if self._plan.offset_header:
            rows = with_offsets(rows, self._plan.by_key)
        if self._plan.by_key:
            places = assign_partitions(rows.column(c.KEY), self._partitions, 0)
        else:
            places = rows.column(c.PARTITION).to_numpy()
        ready = encodable(rows)
        codec, limit = self._plan.codec, BATCH_BYTES
        for partition, indices in rows_by_partition(places):
            place = TopicPartition(self._plan.destination, partition)
            for encoded in encode(ready, indices, codec=codec, now_ms=0, max_batch_bytes=limit, take=take):
                producer.send(place, encoded.batch, encoded.record_count)

    def _warnings(self) -> list[str]:
        settings = topic_settings(self._cluster, self._plan.destination, own_only=False)
        if settings.get(TIMESTAMP_TYPE, CREATE_TIME) != CREATE_TIME:
            raise ArchiveError(
                f"{self._plan.destination} replaces the timestamps of records with the time of the append.",
                f"Change it: headrace topic alter {self._plan.destination} --set {TIMESTAMP_TYPE}={CREATE_TIME}",
            )
        retention_ms = int(settings.get("retention.ms", "-1"))
        oldest = min(
            (
                file.min_timestamp_ms
                for one in self._ranges
                if self._plan.slice.may_have(one)
                for file in one.files
            ),
            default=None,
        )
        deletes = "delete" in settings.get("cleanup.policy", "delete") and retention_ms >= 0
        if deletes and oldest is not None and oldest < time.time() * 1000 - retention_ms:
            return [
                f"{self._plan.destination} keeps records for retention.ms={retention_ms} and will delete older "
                f"ones again; keep them with: headrace topic alter {self._plan.destination} --set retention.ms=-1"
            ]
        return []


def taken_over() -> ArchiveError:
    return ArchiveError("Another run of this replay has taken over.", "Leave it running; this one stops.")


def restoring(plan: ReplayPlan) -> ReplayPlan:
    """The plan for the whole topic, into a topic that keeps it, with the offsets that the records had."""
    return replace(plan, restore=True, offset_header=True)


def with_offsets(rows: pa.RecordBatch, partitions_too: bool) -> pa.RecordBatch:
    """The rows with one more header: the offset that the record had; and on request the partition."""
    headers = _with_header(rows.column(c.HEADERS), OFFSET_HEADER, rows.column(c.OFFSET))
    if partitions_too:
        headers = _with_header(headers, PARTITION_HEADER, rows.column(c.PARTITION))
    return rows.set_column(rows.schema.get_field_index(c.HEADERS), c.HEADERS, headers)


def _with_header(headers: pa.Array, name: str, numbers: pa.Array) -> pa.Array:
    """The headers with one more element in each list; a list that is null counts as empty."""
    assert isinstance(headers, pa.ListArray)
    count = len(headers)
    before = headers.flatten()
    ends = np.cumsum(pc.list_value_length(headers).fill_null(0).to_numpy()).astype(np.int64)
    order = np.full(len(before) + count, -1, np.int64)
    order[ends + np.arange(count)] = len(before) + np.arange(count)
    order[order == -1] = np.arange(len(before))
    values = numbers.cast(pa.string()).cast(pa.binary())
    new = pa.StructArray.from_arrays([pa.array([name] * count, pa.string()), values], ["key", "value"])
    elements = pa.concat_arrays([before.cast(c.HEADER_TYPE), new.cast(c.HEADER_TYPE)]).take(order)
    offsets = np.concatenate(([0], ends + np.arange(1, count + 1))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, type=c.HEADERS_TYPE)

"""Reads a stretch of one partition and puts it into Parquet files, a range of offsets at a time.

A range ends where its rows fill a file, or at the end of the stretch. Its rows go to one file for each day (UTC,
of the record's timestamp), so a topic with old records among new ones gets more and smaller files.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.model.topics import TopicPartition
from headrace.spark.archive.accounting import Account
from headrace.spark.archive.manifest import STAGED, ArchivedRange, DataFile
from headrace.spark.archive.store import ArchiveStore
from headrace.spark.arrow import columns as c
from headrace.spark.arrow.decode import decode
from headrace.spark.client.cluster import READ_COMMITTED, BlockingCluster
from headrace.spark.client.fetching import Chunk, read_chunks

DAY_US = 86_400_000_000
LAST_DAY = (np.datetime64("9999-12-31", "D") - np.datetime64("1970-01-01", "D")).astype(int).item()
FIRST_DAY = (np.datetime64("0001-01-01", "D") - np.datetime64("1970-01-01", "D")).astype(int).item()
"""Dates that every reader understands; timestamps beyond them keep their value and go to the folder of these."""
REPEATED = (c.TOPIC, c.PARTITION, c.TIMESTAMP_TYPE)
"""Columns with few values: worth a dictionary."""
ROW_GROUP_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is to be archived of a partition now."""

    place: TopicPartition
    start: int
    end: int
    lost: int = 0
    """Offsets before `start` that are gone and were never archived."""


def rows_of(cluster: BlockingCluster, place: TopicPartition, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows that a reader sees in a range of the log."""
    yield from decode(_chunks(cluster, place, start, end), c.ALL_COLUMNS, place, start, end)


def _chunks(cluster: BlockingCluster, place: TopicPartition, start: int, end: int) -> Iterator[Chunk]:
    return read_chunks(cluster, place, start, end, isolation=READ_COMMITTED)


class Collector:
    """Writes files under `staged`, and returns the ranges for a commit."""

    def __init__(self, store: ArchiveStore, file_bytes: int, codec: str) -> None:
        self._store = store
        self._file_bytes = file_bytes
        self._codec = codec

    def collect(self, cluster: BlockingCluster, stretch: Stretch) -> Iterator[ArchivedRange]:
        """The ranges of a stretch, each with its files written."""
        place = stretch.place
        if stretch.lost:
            first = stretch.start - stretch.lost
            yield ArchivedRange(place.topic, place.partition, first, stretch.start, lost=stretch.lost)
        if stretch.start >= stretch.end:
            return
        account = Account(place, stretch.start, stretch.end)
        chunks = account.watched(_chunks(cluster, place, stretch.start, stretch.end))
        waiting: list[pa.RecordBatch] = []
        size, start = 0, stretch.start
        for rows in decode(chunks, c.ALL_COLUMNS, place, stretch.start, stretch.end):
            waiting.append(rows)
            size += rows.nbytes
            if size >= self._file_bytes:
                end = int(rows.column(c.OFFSET)[rows.num_rows - 1].as_py()) + 1
                yield self._range(account, place, start, end, waiting)
                waiting, size, start = [], 0, end
        if start < stretch.end:
            yield self._range(account, place, start, stretch.end, waiting)

    def _range(
        self, account: Account, place: TopicPartition, start: int, end: int, batches: list[pa.RecordBatch]
    ) -> ArchivedRange:
        table = pa.Table.from_batches(batches, c.arrow_schema(c.ALL_COLUMNS))
        counts = account.take(end, table.num_rows)
        files = tuple(self._write(place, start, day, part) for day, part in by_day(table))
        return ArchivedRange(
            place.topic,
            place.partition,
            start,
            end,
            rows=table.num_rows,
            markers=counts.markers,
            aborted=counts.aborted,
            compacted=end - start - table.num_rows - counts.markers - counts.aborted,
            files=files,
        )

    def _write(self, place: TopicPartition, start: int, day: str, rows: pa.Table) -> DataFile:
        offsets, times = _numbers(rows, c.OFFSET), _numbers(rows, c.TIMESTAMP) // 1000
        sink = pa.BufferOutputStream()
        pq.write_table(
            rows,
            sink,
            compression=self._codec,
            use_dictionary=list(REPEATED),
            row_group_size=ROW_GROUP_ROWS,
            write_page_index=True,
        )
        data = sink.getvalue().to_pybytes()
        staged = f"{STAGED}/{uuid.uuid4()}.part"
        self._store.write(staged, data)
        return DataFile(
            path=f"topic={place.topic}/day={day}/{place.partition:05}-{start:020}.parquet",
            staged=staged,
            rows=rows.num_rows,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            first_offset=int(offsets[0]),
            last_offset=int(offsets[-1]),
            min_timestamp_ms=int(times.min()),
            max_timestamp_ms=int(times.max()),
        )


def by_day(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each day, in their order."""
    if not rows.num_rows:
        return
    days = np.clip(_numbers(rows, c.TIMESTAMP) // DAY_US, FIRST_DAY, LAST_DAY)
    found = np.unique(days)
    for day in found:
        part = rows if len(found) == 1 else rows.filter(pa.array(days == day))
        yield str(np.datetime64(int(day), "D")), part


def _numbers(rows: pa.Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return rows.column(name).combine_chunks().cast(pa.int64()).to_numpy()

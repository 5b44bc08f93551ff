"""Whether an archive is complete: its manifest, its files, and compared with the log it was made from.

- The manifest: ranges of a partition follow each other, and every offset is accounted for.
- The files: each is there, with the bytes, rows and offsets that were noted; and the folders have no other.
- The log, as far as it still has the offsets: every record is in the archive with the same key, value, headers,
  timestamp and timestamp type. A record of the archive that the log no longer has must have been compacted away
  since, so the topic must be one that is compacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.spark.archive import manifest as m
from headrace.spark.archive.archiving import check_cluster
from headrace.spark.archive.asking import committed_bounds, topic_settings
from headrace.spark.archive.collecting import rows_of
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.archive.reading import rows_of_range
from headrace.spark.archive.store import ArchiveStore
from headrace.spark.arrow import columns as c
from headrace.spark.client.cluster import BlockingCluster

MAX_PROBLEMS = 100


@dataclass(slots=True)
class Verified:
    """What was verified, and what is wrong."""

    ranges: int = 0
    rows: int = 0
    files: int = 0
    compared: int = 0
    """Rows that are the same in the log."""
    compacted_since: int = 0
    """Rows that the log no longer has because it was compacted."""
    only_archived: int = 0
    """Rows before the beginning of the log: the archive alone has them."""
    problems: list[str] = field(default_factory=list)


class Verifier:
    def __init__(self, store: ArchiveStore, cluster: BlockingCluster | None, topics: Iterable[str] = ()) -> None:
        """Without a cluster the log is not compared. `topics`: verify only these."""
        self._store = store
        self._cluster = cluster
        self._manifest = m.load(store)
        self._only = frozenset(topics)
        self._bounds: dict[TopicPartition, tuple[int, int]] = {}
        self._compacted: set[str] = set()
        self.result = Verified()

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self._ranges())

    def verify(self, told: Callable[[Verified], None] = lambda _: None) -> Verified:
        self.result.problems += self._manifest.problems()
        self._find_strays()
        if self._cluster is not None:
            check_cluster(self._cluster, self._manifest.description)
            self._ask(self._cluster)
        for one in self._ranges():
            try:
                self._verify(one)
            except ArchiveError as error:
                self.result.problems.append(error.message)
            told(self.result)
            if len(self.result.problems) >= MAX_PROBLEMS:
                break
        return self.result

    def _ranges(self) -> Iterator[m.ArchivedRange]:
        return (one for one in self._manifest.ranges if not self._only or one.topic in self._only)

    def _find_strays(self) -> None:
        known = {file.path for one in self._manifest.ranges for file in one.files}
        for topic in self._manifest.topics:
            for name in self._store.names(f"topic={topic}"):
                if name.endswith(".parquet") and name not in known:
                    self.result.problems.append(f"{name} does not belong to any commit.")

    def _ask(self, cluster: BlockingCluster) -> None:
        wanted = {one.topic for one in self._ranges()}
        there = cluster.topics(sorted(wanted))
        for name in sorted(wanted):
            if name not in there or there[name].topic_id != self._manifest.topics[name].id:
                self.result.problems.append(f"Topic {name} no longer exists: it was not compared.")
                continue
            self._bounds |= committed_bounds(cluster, [TopicPartition(name, one) for one in there[name].leaders])
            if "compact" in topic_settings(cluster, name, own_only=False).get("cleanup.policy", ""):
                self._compacted.add(name)

    def _verify(self, one: m.ArchivedRange) -> None:
        rows = rows_of_range(self._store, one)
        self.result.ranges += 1
        self.result.files += len(one.files)
        self.result.rows += rows.num_rows
        offsets = _offsets(rows)
        if len(offsets) and (offsets[0] < one.start or offsets[-1] >= one.end or (np.diff(offsets) <= 0).any()):
            raise ArchiveError(f"{_where(one)}: the files do not have the offsets that they should.")
        if self._cluster is not None and one.place in self._bounds:
            self._compare_what_is_left(self._cluster, one, rows)

    def _compare_what_is_left(self, cluster: BlockingCluster, one: m.ArchivedRange, rows: pa.Table) -> None:
        """Retention may delete records while they are compared."""
        while True:
            try:
                return self._compare(cluster, one, rows)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self._bounds |= committed_bounds(cluster, [one.place])

    def _compare(self, cluster: BlockingCluster, one: m.ArchivedRange, rows: pa.Table) -> None:
        log_start, log_end = self._bounds[one.place]
        if one.end > log_end:
            raise ArchiveError(f"{_where(one)}: the log ends at offset {log_end}.")
        start = max(one.start, log_start)
        before = int(np.searchsorted(_offsets(rows), start))
        rows = rows.slice(before)
        if start >= one.end:
            self.result.only_archived += before
            return
        schema = c.arrow_schema(c.ALL_COLUMNS)
        logged = pa.Table.from_batches(list(rows_of(cluster, one.place, start, one.end)), schema).combine_chunks()
        self.result.only_archived += before
        kept = np.isin(_offsets(rows), _offsets(logged), assume_unique=True)
        gone = rows.num_rows - int(kept.sum())
        if gone and one.topic not in self._compacted:
            raise ArchiveError(f"{_where(one)}: {gone} rows of the archive are not in the log.")
        self.result.compacted_since += gone
        if gone:
            rows = rows.filter(pa.array(kept)).combine_chunks()
        if rows.num_rows != logged.num_rows:
            missing = logged.num_rows - rows.num_rows
            raise ArchiveError(f"{_where(one)}: {missing} records of the log are not in the archive.")
        for name in c.ALL_COLUMNS:
            if not rows.column(name).equals(logged.column(name)):
                raise ArchiveError(f"{_where(one)}: the column {name} is not the same in the log.")
        self.result.compared += rows.num_rows


def _offsets(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return rows.column(c.OFFSET).combine_chunks().to_numpy()


def _where(one: m.ArchivedRange) -> str:
    return f"{one.place}, offsets {one.start} to {one.end - 1}"

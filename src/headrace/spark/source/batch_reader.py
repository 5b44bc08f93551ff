"""`spark.read.format("headrace")`: which ranges to read is planned on the driver, tasks read them.

Planned once: the offsets that the options ask for, narrowed by filters that Spark pushed down, cut into tasks. A
partition that is read up to `latest` keeps its last task open at the end, see `reading`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.model.topics import TopicPartition
from headrace.spark.arrow.columns import ColumnError, wanted_columns
from headrace.spark.client.cluster import BlockingCluster, shared_cluster
from headrace.spark.compat import in_pushdown_worker
from headrace.spark.errors import SourceError, explained
from headrace.spark.source.filters import NOTHING_PUSHED, Narrowing, narrow_ranges, read_filters
from headrace.spark.source.observing import (
    RecordSizes,
    client_settings,
    estimate_sizes,
    find_bounds,
    find_topics,
    offset_lookup,
    require_topics,
)
from headrace.spark.source.options import OptionError, SourceOptions, parse_source_options
from headrace.spark.source.positions import (
    NoSuchTimestamp,
    PositionKind,
    TimestampStrategy,
    UnknownPartitions,
    resolve,
)
from headrace.spark.source.ranges import OffsetRange, split_ranges
from headrace.spark.source.reading import ReadTask, reading_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

OPEN_END = 1 << 62
"""Past every offset: stands for an end that tasks look up."""


def make_batch_reader(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    with explained("", OptionError, ColumnError):
        options = parse_source_options(given, streaming=False)
        columns = wanted_columns(schema)
    kind = PushdownBatchReader if in_pushdown_worker() else HeadraceBatchReader
    return kind(options, columns)


class HeadraceBatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._reading = reading_of(options, columns)
        self._narrowing = NOTHING_PUSHED

    def partitions(self) -> list[InputPartition]:
        with explained(self._options.bootstrap, NoSuchTimestamp, UnknownPartitions):
            cluster = shared_cluster(client_settings(self._options))
            return list(plan_tasks(cluster, self._options, self._narrowing))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.read(partition)


class PushdownBatchReader(HeadraceBatchReader):
    """Made only where Spark allows it, see `compat`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._narrowing = read_filters(filters)
        return filters


@dataclass(frozen=True, slots=True)
class Planned:
    """Where to read each partition, as the options ask for it."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def plan_tasks(cluster: BlockingCluster, options: SourceOptions, narrowing: Narrowing) -> list[ReadTask]:
    planned = _resolve_ends(cluster, options)
    wanted = [
        OffsetRange(one, "", start, OPEN_END if _is_open(options, one) else planned.ends[one])
        for one, start in planned.starts.items()
        if narrowing.keeps(one)
    ]
    left = narrow_ranges(narrowing, wanted, _first_in_time(cluster, options, narrowing, planned.ends))
    now = [replace(one, end=planned.ends[one.partition]) if one.end == OPEN_END else one for one in left]
    parts = split_ranges(now, options.splitting, estimate_sizes(RecordSizes(), cluster, options, now))
    tasks = [ReadTask(part.partition, part.start, part.end) for part in parts]
    return _mark_ends(tasks, left, options, planned)


def _resolve_ends(cluster: BlockingCluster, options: SourceOptions) -> Planned:
    topics = find_topics(cluster, options)
    require_topics(cluster, options, topics)
    partitions = options.topics.partitions({name: topic.partition_count for name, topic in topics.items()})
    ask = offset_lookup(cluster, int(options.isolation))
    now_ms = time.time_ns() // 1_000_000
    starts = resolve(options.start, partitions, ask, now_ms=now_ms, strategy=options.timestamp_strategy)
    end = options.end if options.exact_times is None else options.exact_times.planned_end()
    ends = resolve(end, partitions, ask, now_ms=now_ms, strategy=TimestampStrategy.LATEST)
    return _within_the_log(Planned(starts, ends), cluster, options)


def _within_the_log(planned: Planned, cluster: BlockingCluster, options: SourceOptions) -> Planned:
    """Offsets that the user gave by number may not exist: reported now, not by a task that waits for them."""
    given = [
        one
        for one in planned.starts
        if PositionKind.OFFSET in (options.start.of(one).kind, options.end.of(one).kind)
    ]
    starts, ends = dict(planned.starts), dict(planned.ends)
    for one, bounds in find_bounds(cluster, given, int(options.isolation)).items():
        outside = starts[one] < bounds.log_start or max(starts[one], ends[one]) > bounds.log_end
        if outside and options.fail_on_data_loss:
            raise SourceError(
                f"Offsets {starts[one]} to {ends[one] - 1} of partition {one} were asked for, but it holds "
                f"{bounds.log_start} to {bounds.log_end - 1}. Set failOnDataLoss to false to read them."
            )
        starts[one] = max(starts[one], bounds.log_start)
        ends[one] = min(ends[one], bounds.log_end)
    return Planned(starts, ends)


def _is_open(options: SourceOptions, partition: TopicPartition) -> bool:
    return options.end.of(partition).kind is PositionKind.LATEST


def _first_in_time(
    cluster: BlockingCluster, options: SourceOptions, narrowing: Narrowing, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    if narrowing.from_ms is None:
        return {}
    kept = [one for one in ends if narrowing.keeps(one)]
    found = offset_lookup(cluster, int(options.isolation))(dict.fromkeys(kept, narrowing.from_ms))
    # Where no record is that new yet, later ones will be.
    return {one: ends[one] if (first := found[one]) is None else first.offset for one in kept}


def _mark_ends(
    tasks: list[ReadTask], ranges: Iterable[OffsetRange], options: SourceOptions, planned: Planned
) -> list[ReadTask]:
    """The tasks with those at the beginning and the end of a log marked; an open range has at least one."""
    by_partition: dict[TopicPartition, list[ReadTask]] = {}
    for task in tasks:
        by_partition.setdefault(task.partition, []).append(task)
    for one in ranges:
        parts = by_partition.setdefault(one.partition, [])
        if one.end == OPEN_END:
            last = parts.pop() if parts else ReadTask(one.partition, one.start, planned.ends[one.partition])
            parts.append(replace(last, open_end=True))
        if options.start.of(one.partition).kind is PositionKind.EARLIEST:
            parts[:] = [replace(part, from_earliest=True) for part in parts]
    return [task for _, parts in sorted(by_partition.items()) for task in parts]

"""`spark.readStream.format("headrace")`: where a stream starts, how far each batch goes, and which tasks read it.

Spark calls the offset methods in one process of the driver's, for as long as the query runs:

    initialOffset()            once for a new query, and again while its first batch was not committed
    latestOffset(start, limit) before every batch; `start` unchanged means there is nothing to do
    partitions(start, end)     once a batch is in the checkpoint, and again for the last one after a restart
    commit(end)                when the batch after it begins

Rules:
- A first batch is written down even if it is empty when the query starts at a place that moves (`latest`, a time
  ago): a stream that waited for its first record still knows after a restart where it began. `FIRST_KEY` makes the
  initial offset differ from the end of that batch.
- When Spark asks for the end of the next batch, it has finished the one before, so the consumer group is committed
then.
  Spark's own commit comes later, or never when nothing follows. The group is for lag tools only: its failures are
  logged and forgotten.
- The constructor does not fail: an error there is lost behind one of Spark's. A wrong option is raised by the
  first method that Spark calls.
- Nothing new: the cluster is not asked again for `IDLE_POLL_S`, or an idle query would keep a broker busy.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client.errors import ClientError
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.spark.arrow.columns import ColumnError, wanted_columns
from headrace.spark.client.cluster import BlockingCluster, shared_cluster
from headrace.spark.compat import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from headrace.spark.errors import SourceError, explained
from headrace.spark.source.batch_watermark import late_watermark_ms, with_watermark, without_watermark
from headrace.spark.source.data_loss import (
    DataLoss,
    TopicsNow,
    available_now_end,
    check_range,
    check_start,
    not_yet_visible,
    raise_or_warn,
)
from headrace.spark.source.observing import (
    RecordSizes,
    client_settings,
    estimate_sizes,
    find_topics,
    observe,
    offset_lookup,
    require_topics,
    with_retries,
)
from headrace.spark.source.offsets import (
    OffsetFormatError,
    StreamOffset,
    initial_offset,
    next_offset,
    offset_from_json,
    planned_start,
)
from headrace.spark.source.options import OptionError, SourceOptions, parse_source_options
from headrace.spark.source.positions import NoSuchTimestamp, PositionKind, UnknownPartitions, resolve
from headrace.spark.source.ranges import ranges_between, split_ranges
from headrace.spark.source.rate_limit import limit_batch
from headrace.spark.source.reading import ReadTask, reading_of

if TYPE_CHECKING:
    import pyarrow as pa

    # Spark's annotations say just `dict`.
    Given = dict[str, Any]

FIRST_KEY = "@first"
"""As the keys of `offsets`: no topic can have such a name."""
IDLE_POLL_S = 0.1
GROUP_TIMEOUT_S = 5.0
COMMIT_AGAIN_S = 600.0
"""Positions that a group does not renew expire on the broker, also when nothing moves."""
STEADY = (PositionKind.EARLIEST, PositionKind.OFFSET)
EXPLAINED = (DataLoss, NoSuchTimestamp, UnknownPartitions, OffsetFormatError)

log = logging.getLogger(__name__)


class HeadraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._planning: StreamPlanning | None = None
        self._problem = ""
        try:
            with explained("", OptionError, ColumnError):
                options = parse_source_options(given, streaming=True)
                columns = schema if options.offset_log is None else without_watermark(schema)
                self._reading = reading_of(options, wanted_columns(columns))
                self._planning = StreamPlanning(options)
        except SourceError as error:
            self._problem = str(error)

    def initialOffset(self) -> Given:  # noqa: N802
        return self._checked().initial()

    def latestOffset(self, start: Given | None = None, limit: ReadLimit | None = None) -> Given:  # noqa: N802
        return self._checked().latest(start, unlimited=isinstance(limit, ReadAllAvailable))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark has no limit that combines ours: it learns whether there is one, `latestOffset` knows which."""
        limits = self._checked().options.limits
        some = limits.max_offsets or limits.min_offsets or limits.max_bytes
        return ReadMaxRows(some) if some else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._checked().stop_at_the_end()

    def reportLatestOffset(self) -> Given | None:  # noqa: N802
        return self._checked().newest()

    def partitions(self, start: Given, end: Given) -> list[InputPartition]:
        return list(self._checked().tasks(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._checked()
        rows = self._reading.read(partition)
        if isinstance(partition, ReadTask) and partition.watermark_ms is not None:
            return with_watermark(rows, partition.watermark_ms)
        return rows

    def commit(self, end: Given) -> None:
        self._checked().commit_group(offset_from_json(end))

    def _checked(self) -> StreamPlanning:
        if self._planning is None:
            raise SourceError(self._problem)
        return self._planning


class StreamPlanning:
    """The offset methods, with what they remember from call to call."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._sizes = RecordSizes()
        self._target: Mapping[TopicPartition, int] | None = None
        self._seen: tuple[Given, TopicsNow] | None = None
        self._planned_end: Given | None = None
        self._asked_before = False
        self._last_trigger_ms: int | None = None
        self._idle_since: float | None = None
        self._warned: set[str] = set()
        self._group = GroupPositions(options)

    def initial(self) -> Given:
        with explained(self.options.bootstrap, *EXPLAINED):
            offset = self._initial()
        moving = any(
            position.kind not in STEADY
            for position in (self.options.start.default, *self.options.start.named.values())
        )
        answer: Given = {**offset.to_json()}
        return {**answer, FIRST_KEY: {}} if moving else answer

    def latest(self, start: Given | None, *, unlimited: bool) -> Given:
        with explained(self.options.bootstrap, *EXPLAINED):
            if start is None:  # before PySpark 4.2, see `compat`
                start = self.initial() if self._planned_end is None else self._planned_end
                unlimited = not self._asked_before
            self._asked_before = True
            return self._latest(start, offset_from_json(start), unlimited)

    def stop_at_the_end(self) -> None:
        with explained(self.options.bootstrap, *EXPLAINED):
            view = self._observe()
            self._target = {partition: bounds.log_end for partition, bounds in view.bounds.items()}

    def newest(self) -> Given | None:
        """For the progress report: the ends of the logs as last seen, whatever was left for later batches."""
        if self._seen is None:
            return None
        _, view = self._seen
        return dict(StreamOffset({one: bounds.log_end for one, bounds in view.bounds.items()}).to_json())

    def tasks(self, start: Given, end: Given) -> list[ReadTask]:
        self._planned_end = end
        if start == end:
            return []
        with explained(self.options.bootstrap, *EXPLAINED):
            begin, finish = offset_from_json(start), offset_from_json(end)
            if planned_start(begin, finish).positions == finish.positions:
                return []
            seen = self._seen
            view = seen[1] if seen is not None and seen[0] == end else self._observe()
            checked = check_range(begin, finish, view)
            self._report(checked.losses)
            ranges = ranges_between(checked.starts, checked.ends, finish.topic_ids)
            sizes = estimate_sizes(self._sizes, self._cluster(), self.options, ranges)
            parts = split_ranges(ranges, self.options.splitting, sizes)
        log_of = self.options.offset_log
        watermark_ms = None if log_of is None else late_watermark_ms(log_of)
        return [ReadTask(part.partition, part.start, part.end, watermark_ms=watermark_ms) for part in parts]

    def commit_group(self, offset: StreamOffset) -> None:
        self._group.commit(offset.positions)

    def _cluster(self) -> BlockingCluster:
        return shared_cluster(client_settings(self.options))

    def _initial(self) -> StreamOffset:
        cluster = self._cluster()
        topics = find_topics(cluster, self.options)
        require_topics(cluster, self.options, topics)
        positions = resolve(
            self.options.start,
            self.options.topics.partitions({name: topic.partition_count for name, topic in topics.items()}),
            offset_lookup(cluster, int(self.options.isolation)),
            now_ms=_now_ms(),
            strategy=self.options.timestamp_strategy,
        )
        return initial_offset(positions, {name: topic.topic_id for name, topic in topics.items()})

    def _latest(self, given: Given, start: StreamOffset, unlimited: bool) -> Given:
        self.commit_group(start)
        self._pause_when_idle()
        if self._asked_to_stop():
            self._idle_since = time.monotonic()
            return given
        view = self._observe_from(start)
        checked = check_start(start, view)
        self._report(checked.losses)
        ends = self._ends(checked.start.positions, view, unlimited)
        chosen = start if ends is None else next_offset(start, ends, view.topic_ids)
        if chosen is start:
            self._idle_since = time.monotonic()
            answer: Given = {key: value for key, value in given.items() if key != FIRST_KEY}
        else:
            self._idle_since = None
            self._last_trigger_ms = _now_ms()
            answer = {**chosen.to_json()}
        self._seen = (answer, view)
        return answer

    def _ends(
        self, starts: Mapping[TopicPartition, int], view: TopicsNow, unlimited: bool
    ) -> Mapping[TopicPartition, int] | None:
        """How far the next batch goes; None: too little is there yet."""
        limits = self.options.limits
        if self._target is None:
            ends = {one: max(bounds.log_end, starts[one]) for one, bounds in view.bounds.items()}
        else:
            ends = available_now_end(starts, self._target, view)
            limits = replace(limits, min_offsets=None)  # a run to the end does not wait for more
        if unlimited:
            return ends
        sizes = None
        if limits.max_bytes is not None:
            fresh = {one: starts[one] for one, end in ends.items() if end > starts[one]}
            sizes = self._sizes.estimate(self._cluster(), fresh, int(self.options.isolation))
        return limit_batch(
            limits, starts, ends, last_trigger_ms=self._last_trigger_ms, now_ms=_now_ms(), record_bytes=sizes
        )

    def _observe(self) -> TopicsNow:
        cluster = self._cluster()
        return with_retries(cluster, self.options.retries, lambda: observe(cluster, self.options))

    def _observe_from(self, start: StreamOffset) -> TopicsNow:
        """A new leader may for a moment not know of the last records: ask again before that counts as a loss."""
        view = self._observe()
        for _ in range(self.options.retries.count):
            if not not_yet_visible(start, view):
                break
            time.sleep(self.options.retries.interval_ms / 1000)
            view = self._observe()
        return view

    def _report(self, losses: tuple[DataLoss, ...]) -> None:
        for warning in raise_or_warn(losses, fail_on_data_loss=self.options.fail_on_data_loss):
            if warning not in self._warned:
                self._warned.add(warning)
                log.warning(warning)

    def _asked_to_stop(self) -> bool:
        return self.options.stop_file is not None and os.path.exists(self.options.stop_file)

    def _pause_when_idle(self) -> None:
        if self._idle_since is not None:
            time.sleep(max(0.0, self._idle_since + IDLE_POLL_S - time.monotonic()))


class GroupPositions:
    """The consumer group under which the query's progress can be seen; it decides nothing."""

    def __init__(self, options: SourceOptions) -> None:
        self._group = options.group_id
        self._settings = replace(client_settings(options), request_timeout_s=GROUP_TIMEOUT_S)
        self._committed: Mapping[TopicPartition, int] | None = None
        self._next_s = 0.0

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        now_s = time.monotonic()
        if self._group is None or (positions == self._committed and now_s < self._next_s):
            return
        self._committed, self._next_s = positions, now_s + COMMIT_AGAIN_S
        try:
            shared_cluster(self._settings).commit_offsets(self._group, positions)
        except (KafkaError, ClientError) as error:
            log.warning("The offsets of group %s were not committed, so it appears to lag: %s", self._group, error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

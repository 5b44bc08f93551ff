"""Runs a sink: the records of its topics, and the positions behind them, in transactions of the target.

Each task has some of the partitions, a reader and a thread. The positions are also committed under the consumer
group `connector-<name>`, so that `headrace group describe` and every other tool shows how far behind the sink is;
for a sink that stores none they are the positions.

The steps: opened, then again and again read, written, noted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.client.fetching import FetchLimits, RecordReader
from headrace.client.groups import commit_offsets, fetch_offsets
from headrace.client.offsets import READ_COMMITTED, offset_ranges
from headrace.client.view import ClusterView, TopicView
from headrace.connect.api import ConnectorError, Sink, SinkRecord, SinkTask, TryAgain
from headrace.connect.run import Run, TaskThread
from headrace.connect.schema import TopicSchema
from headrace.connect.store import SCHEMA, read_state, under
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

log = logging.getLogger(__name__)

STEPS = ("opened", "read", "written", "noted")
GROUP_PREFIX = "connector-"
MAX_WAIT_MS = 500
LOOK_EVERY_S = 30.0
"""How often the number of partitions is looked at."""
Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SinkInput:
    topics: tuple[str, ...]
    from_latest: bool = False
    """Whether a sink without a position begins at the latest records."""
    tasks: int = 1
    batch_bytes: int = 4 << 20


class SinkRun:
    def __init__(self, run: Run, sink: Sink, given: SinkInput) -> None:
        self._run = run
        self._sink = sink
        self._given = given
        self.group = GROUP_PREFIX + run.name
        self._lags: dict[str, int] = {}
        self._starts: Offsets = {}
        """Where to begin in partitions for which the target has no position."""

    async def run(self) -> None:
        """Run until it is stopped, or with `once` until all existing records are written."""
        cluster = self._run.cluster
        view = await cluster.metadata(self._given.topics)
        places = [
            TopicPartition(topic.name, one.number) for topic in self._there(view) for one in topic.partitions
        ]
        schemas = {
            topic: TopicSchema.from_json(stored)
            for topic, stored in under(await read_state(cluster), SCHEMA).items()
        }
        ranges = await offset_ranges(cluster, places, READ_COMMITTED)
        self._starts = await self._note_starts(places, ranges) if self._given.from_latest else {}
        count = min(self._given.tasks, len(places))
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                mine = places[number::count]
                group.create_task(self._run_task(str(number), mine, ranges, schemas))
            if not self._run.once:
                group.create_task(self._watch_partitions(len(places)))

    def _there(self, view: ClusterView) -> list[TopicView]:
        """The topics to read; TryAgain if a source beside this sink may still create one. With `once` the sources
        have ended before, and what they did not create is empty."""
        if not self._run.sources_beside:
            return [view.topic(name) for name in self._given.topics]
        absent = [
            name for name in self._given.topics if view.errors.get(name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        if absent and not self._run.once:
            raise TryAgain(f"the topic {absent[0]} does not exist yet")
        return [view.topic(name) for name in self._given.topics if name not in absent]

    async def _note_starts(
        self, places: Sequence[TopicPartition], ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> Offsets:
        """The offsets at which the first run of the sink began, which count for all later runs: records that come
        before a run has written something are not older than the sink. Partitions that are added later are read
        from their start."""
        noted = await fetch_offsets(self._run.cluster, self.group)
        begun = {one.topic for one in noted}
        fresh = {one: ranges[one][1] for one in places if one.topic not in begun}
        if fresh:
            outcomes = await commit_offsets(self._run.cluster, self.group, fresh)
            for error in filter(None, outcomes.values()):
                raise error
        return {**noted, **fresh}

    async def _watch_partitions(self, count: int) -> None:
        """Restart the tasks when partitions are added."""
        while not self._run.stopping.is_set():
            await self._run.pause(LOOK_EVERY_S)
            view = await self._run.cluster.metadata(self._given.topics)
            if sum(len(topic.partitions) for topic in view.topics.values()) > count:
                raise TryAgain("there are more partitions now")

    async def _run_task(
        self,
        task_id: str,
        partitions: Sequence[TopicPartition],
        ranges: Mapping[TopicPartition, tuple[int, int]],
        schemas: Mapping[str, TopicSchema],
    ) -> None:
        thread = TaskThread(f"{self._run.name}-{task_id}")
        task: SinkTask | None = None
        try:
            task = await thread.call(lambda: self._sink.open(task_id, partitions, schemas))
            stored = await thread.call(task.positions)
            own = stored is not None
            if stored is None:
                stored = await fetch_offsets(self._run.cluster, self.group)
            self._run.at("opened")
            begin = {one: self._begin(one, stored, ranges[one]) for one in partitions}
            limits = FetchLimits(
                max_wait_ms=MAX_WAIT_MS,
                isolation=READ_COMMITTED,
                max_bytes=self._given.batch_bytes,
                partition_max_bytes=self._given.batch_bytes,
            )
            reader = RecordReader(self._run.cluster, begin, limits)
            ends = {one: ranges[one][1] for one in partitions} if self._run.once else None
            await _Copying(self._run, self, (task_id, task, thread), reader).copy(ends, own)
        finally:
            await thread.finish(None if task is None else task.close)

    def _begin(self, place: TopicPartition, stored: Offsets, span: tuple[int, int]) -> int:
        at = stored.get(place, self._starts.get(place, span[0]))
        if at > span[1]:
            raise ConnectorError(
                f"partition {place} ends at offset {span[1]}, and the sink {self._run.name} has read it up to "
                f"{at}: the topic was deleted and created again. Reset the sink with "
                "`headrace connector remove`; the next run reads the topic from its beginning"
            )
        if at < span[0]:
            raise ConnectorError(
                f"partition {place} begins at offset {span[0]} now, and the sink {self._run.name} has read it up "
                f"to {at} only: the records in between were removed by the topic's retention"
            )
        return at

    def note_lag(self, task_id: str, lag: int) -> None:
        self._lags[task_id] = lag
        self._run.counts.lag = sum(self._lags.values())


class _Copying:
    """The loop of one task."""

    def __init__(
        self, run: Run, owner: SinkRun, opened: tuple[str, SinkTask, TaskThread], reader: RecordReader
    ) -> None:
        self._run = run
        self._owner = owner
        self._task_id, self._task, self._thread = opened
        self._reader = reader

    async def copy(self, ends: Offsets | None, stores_positions: bool) -> None:
        written = dict(self._reader.positions)
        while not self._run.stopping.is_set() and not self._is_done(written, ends):
            records = await self._read()
            positions = dict(self._reader.positions)
            if positions != written:
                self._run.at("read")
                await self._thread.call(lambda: self._task.write(records, positions))  # noqa: B023
                self._run.at("written")
                moved = {one: at for one, at in positions.items() if written[one] != at}
                written = positions
                await self._note(moved, must=not stores_positions)
                self._run.at("noted")
                self._run.counts.records += len(records)
                self._run.counts.bytes += sum(len(one.key or b"") + len(one.value or b"") for one in records)
                self._run.counts.transactions += 1
            for name, value in self._task.metrics().items():
                self._run.counts.gauges[f"{self._task_id}/{name}"] = value

    def _is_done(self, positions: Offsets, ends: Offsets | None) -> bool:
        return ends is not None and all(positions[one] >= end for one, end in ends.items())

    async def _read(self) -> list[SinkRecord]:
        records: list[SinkRecord] = []
        lag = 0
        for fetched in await self._reader.poll():
            lag += max(0, fetched.high_watermark - fetched.next_offset)
            topic, partition = fetched.partition
            records += [
                SinkRecord(topic, partition, one.offset, one.timestamp, one.key, one.value, one.headers)
                for one in fetched.records()
            ]
        self._owner.note_lag(self._task_id, lag)
        return records

    async def _note(self, positions: Offsets, must: bool) -> None:
        """Commit the positions under the group's name. It may fail if the target stores them too."""
        outcomes: Mapping[TopicPartition, KafkaError | None]
        try:
            outcomes = await commit_offsets(self._run.cluster, self._owner.group, positions)
        except KafkaError as refused:  # of the group as a whole, such as missing rights on it
            outcomes = dict.fromkeys(positions, refused)
        for place, error in outcomes.items():
            if error is None:
                continue
            if must:
                raise error
            if error.code != ErrorCode.REBALANCE_IN_PROGRESS:
                log.info("The position of %s could not be committed to the group: %s", place, error)

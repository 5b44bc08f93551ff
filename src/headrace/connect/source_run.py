"""Runs a source: what its tasks read, and their positions, in transactions of one producer.

The producer's transactional id is the connector's. So one transaction may hold what several tasks have read, and
starting fences a run that is still there, all of its tasks at once, before the positions are read.

The steps, in their order: fenced, positions, opened, then again and again polled, sent, stored, committed, told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from headrace.client.admin import NewTopic
from headrace.client.partitioner import partition_for_key
from headrace.client.transactional_producer import TransactionalProducer
from headrace.connect.api import EmptiedTopic, Position, Source, SourceBatch, SourceRecord, SourceTask
from headrace.connect.emptying import live_keys
from headrace.connect.run import Run, TaskThread
from headrace.connect.schema import TopicSchema
from headrace.connect.store import (
    POSITION,
    SCHEMA,
    STATE_PARTITION,
    ensure_state_topic,
    ensure_topic,
    position_key,
    read_state,
    schema_key,
    state_record,
    under,
)
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord

log = logging.getLogger(__name__)

STEPS = ("fenced", "positions", "opened", "polled", "sent", "stored", "committed", "told")
ONCE_PAUSE_S = 0.05
"""Between polls of a run that is to end: what is not ready yet will be soon."""
TOMBSTONES_AT_ONCE = 5000
ID_PREFIX = "headrace.connector."


class _OpenTask(NamedTuple):
    id: str
    task: SourceTask
    thread: TaskThread


class SourceRun:
    def __init__(self, run: Run, source: Source) -> None:
        self._run = run
        self._source = source
        self._producer = TransactionalProducer(run.cluster, ID_PREFIX + run.name)
        self._tasks: list[_OpenTask] = []
        self._schemas: dict[str, TopicSchema] = {}
        self._partition_counts: dict[str, int] = {}
        self._batches = 0
        # Of the open transaction:
        self._partial: set[str] = set()
        """Tasks whose last batch had no position."""
        self._positions: dict[str, Position] = {}
        self._new_schemas: dict[str, TopicSchema] = {}
        self._sent = [0, 0]
        """Records and bytes."""

    async def run(self) -> None:
        """Until it is told to stop, or, if it runs once, until all existing data is written."""
        try:
            await self._open(await self._take_over())
            await self._copy()
        finally:
            for one in self._tasks:
                await one.thread.finish(one.task.close)

    async def _take_over(self) -> dict[str, Position]:
        await ensure_state_topic(self._run.cluster)
        await self._producer.start()
        self._run.at("fenced")
        state = await read_state(self._run.cluster)
        self._schemas = {topic: TopicSchema.from_json(stored) for topic, stored in under(state, SCHEMA).items()}
        self._run.at("positions")
        return dict(under(state, POSITION, self._run.name))

    async def _open(self, positions: dict[str, Position]) -> None:
        opener = TaskThread(f"{self._run.name}-open")
        try:
            ids = await opener.call(self._source.tasks)
            timeout_ms = int(self._source.transaction_timeout_s(positions) * 1000)
        finally:
            await opener.finish(None)
        await self._producer.use_timeout(timeout_ms)
        for task_id in ids:
            thread = TaskThread(f"{self._run.name}-{task_id}")
            position = positions.get(task_id)
            try:
                task = await thread.call(lambda id=task_id, at=position: self._source.open(id, at))  # type: ignore[misc]
            except BaseException:
                await thread.finish(None)
                raise
            self._tasks.append(_OpenTask(task_id, task, thread))
        self._run.at("opened")

    async def _copy(self) -> None:
        polls = {one.thread.call(one.task.poll): one for one in self._tasks}
        while polls:
            done, _ = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
            answered = [(polls.pop(future), future.result()) for future in done]
            finished = [one.id for one, batch in answered if not await self._take(one, batch)]
            if not self._partial:
                await self._commit()
            for one, batch in answered:
                if one.id not in finished and not self._run.stopping.is_set():
                    polls[asyncio.ensure_future(self._next_poll(one, idle=batch is None))] = one
        await self._producer.abort()

    async def _next_poll(self, one: _OpenTask, idle: bool) -> SourceBatch | None:
        if idle and self._source.idle_pause_s:
            longest = ONCE_PAUSE_S if self._run.once else self._source.idle_pause_s
            await self._run.pause(min(self._source.idle_pause_s, longest))
        return await one.thread.call(one.task.poll)

    async def _take(self, one: _OpenTask, batch: SourceBatch | None) -> bool:
        """Write what a task has read; False if there is nothing more to come in this run."""
        self._measure(one)
        if batch is None:
            return not (self._run.once and await one.thread.call(one.task.caught_up))
        self._run.at("polled")
        for schema in batch.schemas:
            self._notice(schema)
        await self._send(batch.records)
        for emptied in batch.emptied:
            await self._empty(emptied)
        if batch.position is None:
            self._partial.add(one.id)
        else:
            self._partial.discard(one.id)
            self._positions[one.id] = batch.position
        self._run.at("sent")
        return True

    def _measure(self, one: _OpenTask) -> None:
        for name, value in one.task.metrics().items():
            self._run.counts.gauges[f"{one.id}/{name}"] = value

    def _notice(self, schema: TopicSchema) -> None:
        before = self._new_schemas.get(schema.topic) or self._schemas.get(schema.topic)
        if before == schema:
            return
        self._new_schemas[schema.topic] = schema
        if before is not None:
            self._run.counts.schema_changes += 1
            log.warning(
                "The schema of topic %s changes: %s.", schema.topic, ", ".join(schema.changes_from(before))
            )

    # --- the transaction

    async def _send(self, records: Sequence[SourceRecord]) -> None:
        now_ms = self._run.wall_ms()
        placed: dict[TopicPartition, list[NewRecord]] = {}
        for record in records:
            partition = TopicPartition(record.topic, await self._partition_of(record))
            timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
            placed.setdefault(partition, []).append(
                NewRecord(record.value, record.key, timestamp_ms, record.headers)
            )
            self._sent[1] += len(record.key or b"") + len(record.value or b"")
        self._batches += 1
        if placed:
            await self._producer.send(placed)
        self._sent[0] += len(records)

    async def _empty(self, emptied: EmptiedTopic) -> None:
        """A tombstone for every existing key, in the same transaction."""
        count = self._partition_counts.get(emptied.topic) or await self._count_partitions(emptied.topic)
        deleted = 0
        for number in range(count):
            partition = TopicPartition(emptied.topic, number)
            keys = await live_keys(self._run.cluster, partition, self._producer.producer_id)
            for start in range(0, len(keys), TOMBSTONES_AT_ONCE):
                await self._send(
                    [
                        SourceRecord(emptied.topic, None, key, emptied.timestamp_ms, emptied.headers, number)
                        for key in keys[start : start + TOMBSTONES_AT_ONCE]
                    ]
                )
            deleted += len(keys)
        log.warning("Topic %s is emptied: %d keys are deleted.", emptied.topic, deleted)

    async def _partition_of(self, record: SourceRecord) -> int:
        if record.partition is not None:
            return record.partition
        count = self._partition_counts.get(record.topic) or await self._count_partitions(record.topic)
        return self._batches % count if record.key is None else partition_for_key(record.key, count)

    async def _count_partitions(self, topic: str) -> int:
        cluster, new = self._run.cluster, self._run.new_topics
        configs = {**self._source.topic_configs(topic), **new.configs}
        await ensure_topic(cluster, NewTopic(topic, new.partitions, new.replication, configs))
        count = len((await cluster.metadata([topic])).topic(topic).partitions)
        self._partition_counts[topic] = count
        return count

    async def _commit(self) -> None:
        positions, schemas = self._positions, self._new_schemas
        if not positions:
            return
        now_ms = self._run.wall_ms()
        stored = [
            state_record(position_key(self._run.name, task), position, now_ms)
            for task, position in positions.items()
        ]
        stored += [state_record(schema_key(topic), schema.to_json(), now_ms) for topic, schema in schemas.items()]
        await self._producer.send({STATE_PARTITION: stored})
        self._run.at("stored")
        await self._producer.commit()
        self._run.at("committed")
        self._positions, self._new_schemas = {}, {}
        self._schemas.update(schemas)
        self._count()
        for one in self._tasks:
            if one.id in positions:
                await one.thread.call(lambda one=one: one.task.committed(positions[one.id]))  # type: ignore[misc]
        self._run.at("told")

    def _count(self) -> None:
        counts = self._run.counts
        counts.records += self._sent[0]
        counts.bytes += self._sent[1]
        counts.transactions += 1
        self._sent = [0, 0]

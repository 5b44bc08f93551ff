"""Compaction as a service (R-LOG-5): choose the dirtiest log, have a worker clean it, swap the new segments in.

The worker is a process of its own (the interpreter lock), started when there is something to clean and ended when
there is not. It only writes `.cleaned` files; everything that changes the log happens here, on the loop, between
two awaits. A log that is cut, deleted or closed meanwhile aborts the cleaning: the worker is killed, its files go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Protocol

from headrace.config.broker_config import BrokerConfig
from headrace.config.dynamic import BrokerConfigs, current_value
from headrace.env import Env
from headrace.metrics.exposition import Family, counter, gauge
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.storage.compaction.choice import Cleanable, find_cleanable, request_for
from headrace.storage.compaction.messages import (
    CleanedGroup,
    CleaningFailure,
    CleaningReport,
    CleaningRequest,
    decode_reply,
    encode_request,
)
from headrace.storage.compaction.swap import Cleaning, discard_cleaned, offer
from headrace.storage.log import Log
from headrace.storage.log_directories import LogDirectories
from headrace.storage.log_directory import LogDirectory
from headrace.storage.segment import Segment

log = logging.getLogger(__name__)

REST_SECONDS = 60.0
"""Before a log is tried again whose cleaning failed."""
UNTHROTTLED_BYTES_PER_SECOND = 1e12
"""Kafka's default is the largest double, by which it means none."""


class Worker(Protocol):
    async def tell(self, line: bytes) -> None: ...
    async def hear(self) -> bytes: ...
    def kill(self) -> None: ...
    async def close(self) -> None: ...


StartWorker = Callable[[], Awaitable[Worker]]


class CleaningFailed(Exception):
    """A cleaning failed; the message says why."""

    def __init__(self, message: str, is_damage: bool = False) -> None:
        super().__init__(message)
        self.is_damage = is_damage


@dataclass(slots=True)
class CleanerTotals:
    """What has been done since the start."""

    cleanings: int = 0
    failures: int = 0
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    longest_seconds: float = 0.0
    peak_memory_bytes: int = 0
    map_utilization: float = 0.0
    dirtiest_ratio: float = 0.0

    def add(self, report: CleaningReport) -> None:
        self.cleanings += 1
        self.records_in += report.records_in
        self.records_out += report.records_out
        self.bytes_in += report.bytes_in
        self.bytes_out += report.bytes_out
        self.seconds += report.seconds
        self.longest_seconds = max(self.longest_seconds, report.seconds)
        self.peak_memory_bytes = max(self.peak_memory_bytes, report.peak_memory_bytes)
        self.map_utilization = report.map_utilization


class Cleaner:
    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        dynamic: Callable[[], BrokerConfigs],
        directories: LogDirectories,
        replicas: ReplicaSet,
        start_worker: StartWorker,
    ) -> None:
        """`dynamic` is what AlterConfigs has set on brokers."""
        self._env = env
        self._config = config
        self._dynamic = dynamic
        self._directories = directories
        self._replicas = replicas
        self._start_worker = start_worker
        self._resting: dict[TopicPartition, tuple[Log, float]] = {}
        """Logs whose cleaning failed, and until when they are left alone."""
        self.totals = CleanerTotals()

    async def run(self) -> None:
        """Until cancelled."""
        if not self._config.boolean("log.cleaner.enable"):
            log.warning("log.cleaner.enable=false: compacted topics, also those of the broker itself, only grow")
            return
        async with asyncio.TaskGroup() as group:
            for _ in range(self._threads):
                group.create_task(self._work())

    @property
    def _threads(self) -> int:
        return self._config.integer("log.cleaner.threads")

    def _number(self, name: str) -> float:
        value = current_value(self._config, self._dynamic(), name)
        assert isinstance(value, int | float), name
        return value

    async def _work(self) -> None:
        """Clean one log after the other; sleep when none is dirty enough."""
        while True:
            try:
                await self._clean_all_that_is_due()
            except OSError:
                log.exception("The worker that compacts logs cannot be started")
            await self._env.clock.sleep(self._number("log.cleaner.backoff.ms") / 1000)

    async def _clean_all_that_is_due(self) -> None:
        worker: Worker | None = None
        try:
            while (chosen := self._choose()) is not None:
                worker = worker or await self._start_worker()
                if not await self._clean(worker, *chosen):
                    worker.kill()
                    await worker.close()
                    worker = None
        finally:
            if worker is not None:
                worker.kill()
                await worker.close()

    # Choose

    def _choose(self) -> tuple[LogDirectory, Cleanable] | None:
        """The dirtiest log that is due."""
        candidates = list(self._candidates())
        self.totals.dirtiest_ratio = max((target.ratio for _, target in candidates), default=0.0)
        due = [candidate for candidate in candidates if candidate[1].is_due]
        return max(due, key=lambda candidate: (candidate[1].ratio, candidate[1].dirty_bytes), default=None)

    def _candidates(self) -> Iterator[tuple[LogDirectory, Cleanable]]:
        now_ms = self._env.clock.wall_ms()
        for directory in self._directories.online:
            for name, held in list(directory.logs.items()):
                if not held.config.compacted or held.cleaning is not None or self._is_resting(name, held):
                    continue
                partition = self._partition(held)
                if partition is None:
                    continue
                target = find_cleanable(held, directory.resources, partition.last_stable_offset, now_ms)
                if target is not None:
                    yield directory, target

    def _is_resting(self, name: TopicPartition, held: Log) -> bool:
        resting = self._resting.get(name)
        if held.failure is not None:
            return True
        if resting is None:
            return False
        if resting[0] is held and resting[1] > self._env.clock.monotonic():
            return True
        del self._resting[name]
        return False

    # Clean

    async def _clean(self, worker: Worker, directory: LogDirectory, target: Cleanable) -> bool:
        """Clean one log. False if the worker must not be used again."""
        held = target.log
        cleaning = held.cleaning = Cleaning(directory.resources, worker.kill)
        try:
            report = await self._clean_with(worker, directory, target, cleaning)
            self._note(held, target, report)
            held.cleaning = None
            partition = self._partition(held)
            if partition is not None:
                partition.delete_expired()  # retention waited for us
        except (CleaningFailed, KafkaError, OSError) as failure:
            await self._give_up(held, cleaning, failure)
            return False
        finally:
            held.cleaning = None
            if cleaning.offered is not None:
                cleaning.abort()
        return True

    async def _clean_with(
        self, worker: Worker, directory: LogDirectory, target: Cleanable, cleaning: Cleaning
    ) -> CleaningReport:
        held = target.log
        await self._env.run_blocking(lambda: self._prepare(directory, held, target.upper_offset))
        self._check(cleaning)
        await worker.tell(encode_request(self._request(target)))
        while line := await worker.hear():
            self._check(cleaning)
            reply = decode_reply(line)
            if isinstance(reply, CleaningFailure):
                raise CleaningFailed(reply.message, reply.is_damage)
            if isinstance(reply, CleaningReport):
                held.first_dirty_offset = reply.end_offset
                await self._env.run_blocking(directory.write_dirty_offsets)
                return reply
            if reply.changed:
                await self._swap(held, cleaning, reply)
        raise CleaningFailed("the log was cut or deleted" if cleaning.is_aborted else "the worker has ended")

    def _prepare(self, directory: LogDirectory, held: Log, upper_offset: int) -> None:
        """Blocking. Everything that will be read is on the device, and nothing is left of an earlier cleaning."""
        held.flush(upper_offset)
        discard_cleaned(self._env.disk, held.directory)
        if held.first_dirty_offset < 0:
            # Before the first gap: recovery must know that there may be some.
            held.first_dirty_offset = held.start_offset
            directory.write_dirty_offsets()

    def _check(self, cleaning: Cleaning) -> None:
        if cleaning.is_aborted:
            raise CleaningFailed("the log was cut or deleted")

    def _request(self, target: Cleanable) -> CleaningRequest:
        rate = self._number("log.cleaner.io.max.bytes.per.second")
        return request_for(
            target,
            now_ms=self._env.clock.wall_ms(),
            memory_bytes=int(self._number("log.cleaner.dedupe.buffer.size")) // self._threads,
            bytes_per_second=rate / self._threads if rate < UNTHROTTLED_BYTES_PER_SECOND else 0.0,
        )

    async def _swap(self, held: Log, cleaning: Cleaning, group: CleanedGroup) -> None:
        disk = self._env.disk
        new = Segment(held.directory, group.base_offset, group.size)
        sources = [segment for segment in held.segments if segment.base_offset in group.sources]
        assert [segment.base_offset for segment in sources] == list(group.sources)
        offer(disk, new)
        cleaning.offered = new
        await self._env.run_blocking(lambda: disk.fsync_directory(held.directory))
        self._check(cleaning)
        cleaning.offered = None
        held.replace_segments(sources, new)

    # Afterwards

    def _note(self, held: Log, target: Cleanable, report: CleaningReport) -> None:
        self.totals.add(report)
        log.info(
            "%s: compacted up to offset %d in %.1f s: kept %d of %d records, %d bytes became %d "
            "(%.0f%% were dirty, %d keys, map %.0f%% full, %d tombstones dropped)",
            held.partition,
            report.end_offset,
            report.seconds,
            report.records_out,
            report.records_in,
            report.bytes_in,
            report.bytes_out,
            100 * target.ratio,
            report.keys,
            100 * report.map_utilization,
            report.tombstones_dropped,
        )
        if report.batches_unread:
            log.warning(
                "%s: %d batches could not be read as records and are kept unchanged",
                held.partition,
                report.batches_unread,
            )

    async def _give_up(self, held: Log, cleaning: Cleaning, failure: Exception) -> None:
        if cleaning.is_aborted:
            log.info("%s: compaction was aborted: the log was cut, deleted or closed", held.partition)
        else:
            self.totals.failures += 1
            is_damage = isinstance(failure, CleaningFailed) and failure.is_damage
            until = inf if is_damage else self._env.clock.monotonic() + REST_SECONDS
            self._resting[held.partition] = (held, until)
            log.error(
                "%s: compaction failed and will %s: %s",
                held.partition,
                "not be tried again before a restart" if is_damage else f"be tried again in {REST_SECONDS:.0f} s",
                failure,
            )
        await self._env.run_blocking(lambda: discard_cleaned(self._env.disk, held.directory))

    def _partition(self, held: Log) -> Partition | None:
        """Whose log it is, if it still is."""
        name = held.partition
        partition = self._replicas.by_name.get(name.topic.encode(), {}).get(name.partition)
        return partition if partition is not None and partition.log is held else None

    def families(self) -> Iterator[Family]:
        totals = self.totals
        set_aside = sum(until == inf for _, until in self._resting.values())
        yield counter("headrace_cleaner_cleanings_total", "Cleanings of compacted logs.", totals.cleanings)
        yield counter("headrace_cleaner_failures_total", "Cleanings that failed.", totals.failures)
        yield counter("headrace_cleaner_records_read_total", "Records read by compaction.", totals.records_in)
        yield counter("headrace_cleaner_records_kept_total", "Records that stayed.", totals.records_out)
        yield counter("headrace_cleaner_bytes_before_total", "Bytes of logs before compaction.", totals.bytes_in)
        yield counter("headrace_cleaner_bytes_after_total", "Bytes of logs after compaction.", totals.bytes_out)
        yield counter("headrace_cleaner_seconds_total", "Time spent in compaction.", totals.seconds)
        yield gauge("headrace_cleaner_longest_seconds", "The longest cleaning.", totals.longest_seconds)
        yield gauge("headrace_cleaner_max_dirty_percent", "The dirtiest log's share.", 100 * totals.dirtiest_ratio)
        yield gauge(
            "headrace_cleaner_map_percent", "How full the last offset map was.", 100 * totals.map_utilization
        )
        yield gauge("headrace_cleaner_peak_memory_bytes", "Peak memory of a worker.", totals.peak_memory_bytes)
        yield gauge("headrace_cleaner_uncleanable_partitions", "Set aside for damage.", set_aside)

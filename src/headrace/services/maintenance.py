"""What a broker does by the clock: expire old segments, forget old producers, checkpoint, remove deleted files."""

from __future__ import annotations

import asyncio
import logging
import os.path
from collections.abc import Awaitable, Callable, Iterator

from headrace.config.broker_config import BrokerConfig
from headrace.config.dynamic import current_integer
from headrace.env import Env
from headrace.metrics.exposition import Family, Labels, gauge
from headrace.model.errors import KafkaError
from headrace.replication.replica_set import ReplicaSet
from headrace.storage.log_directories import LogDirectories
from headrace.storage.log_directory import LogDirectory

log = logging.getLogger(__name__)

REMOVAL_INTERVAL_MS = 1_000
STRAY_INTERVAL_MS = 60_000


class Maintenance:
    def __init__(self, env: Env, config: BrokerConfig, directories: LogDirectories, replicas: ReplicaSet) -> None:
        self._env = env
        self._config = config
        self._directories = directories
        self._replicas = replicas

    async def run(self) -> None:
        """Until cancelled."""
        interval = self._config.integer
        async with asyncio.TaskGroup() as group:
            for interval_ms, step in (
                (interval("log.retention.check.interval.ms"), self._apply_retention),
                (interval("producer.id.expiration.check.interval.ms"), self._expire_producers),
                (interval("log.flush.offset.checkpoint.interval.ms"), self._checkpoint),
                (interval("replica.high.watermark.checkpoint.interval.ms"), self._save_high_watermarks),
                (REMOVAL_INTERVAL_MS, self._remove_deleted),
                (STRAY_INTERVAL_MS, self._remove_strays),
            ):
                group.create_task(self._every(interval_ms / 1000, step))

    async def _every(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._env.clock.sleep(seconds)
            try:
                await step()
            except (OSError, KafkaError) as error:
                # The log that failed says so to its own clients; the others still need their upkeep.
                log.error("Maintenance failed; retrying in %g s: %s", seconds, error)

    def families(self) -> Iterator[Family]:
        strays = sum(len(directory.resources.strays) for directory in self._directories)
        yield gauge("headrace_strays", "Logs and files that were set aside at a start.", strays)
        offline = sum(directory.failure is not None for directory in self._directories)
        yield gauge("kafka_log_logmanager_offlinelogdirectorycount", "Data directories that failed.", offline)
        spaces = [(_named(directory), self._space(directory.path)) for directory in self._directories.online]
        known = [(labels, space) for labels, space in spaces if space is not None]
        free = [(labels, float(space[0])) for labels, space in known]
        yield Family("headrace_log_directory_free_bytes", "gauge", "Free space, by data directory.", free)
        total = [(labels, float(space[1])) for labels, space in known]
        yield Family("headrace_log_directory_bytes", "gauge", "Size of the file system, by data directory.", total)

    def _space(self, path: str) -> tuple[int, int] | None:
        """Free and total bytes; None if the disk does not report them."""
        try:
            return self._env.disk.free_bytes(path), self._env.disk.total_bytes(path)
        except OSError:
            return None

    async def _apply_retention(self) -> None:
        for partition in list(self._replicas.all()):
            try:
                removed = partition.delete_expired()
            except (OSError, KafkaError) as error:
                log.error("%s: retention failed; retrying: %s", partition.topic_partition, error)
                continue
            if removed:
                log.info("%s: retention removed %d segments", partition.topic_partition, removed)

    async def _expire_producers(self) -> None:
        configs = self._replicas.image.broker_configs
        expiration_ms = current_integer(self._config, configs, "producer.id.expiration.ms")
        for partition in list(self._replicas.all()):
            partition.log.expire_producers(expiration_ms)

    async def _checkpoint(self) -> None:
        await self._env.run_blocking(self._directories.checkpoint)

    async def _save_high_watermarks(self) -> None:
        await self._env.run_blocking(self._replicas.save_high_watermarks)

    async def _remove_deleted(self) -> None:
        await self._directories.remove_deleted()

    async def _remove_strays(self) -> None:
        await self._directories.remove_strays(
            self._config.integer("headrace.stray.retention.ms"),
            self._config.integer("headrace.moved.retention.ms"),
        )


def _named(directory: LogDirectory) -> Labels:
    return (("directory", os.path.dirname(directory.path)),)

"""All data directories of a broker as one: a new log goes to the directory with the fewest logs.

A directory that fails (R-LOG-8) takes only its own logs with it. If one is missing at start, a log that is not
found may be in it: it is then not created elsewhere, but stays offline until the directory is back. Two copies of
a log, or a directory that belongs to another broker, are for an operator to decide.
"""

from __future__ import annotations

import logging
import os.path
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from headrace.env import Env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicId, TopicPartition
from headrace.storage.identity import DirectoryRefused
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directory import ConfigOf, LogDirectory
from headrace.storage.moving import Place, finish_moves
from headrace.storage.strays import MOVED

logger = logging.getLogger(__name__)


class LogDirectories:
    """The data directories. Opening, loading, checkpointing, closing block: only at start, stop, or in a
    thread."""

    def __init__(self, env: Env, paths: Sequence[str], node_id: int) -> None:
        self._env = env
        self._node_id = node_id
        self._directories = [LogDirectory(env, os.path.join(path, f"broker-{node_id}")) for path in paths]
        self._opened: list[LogDirectory] = []
        self._loaded = False
        self.cordoned: frozenset[str] = frozenset()
        """The paths that are cordoned: they get no new logs, as long as there is another."""

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.failure is None]

    def open(self, cluster_id: str, config_of: ConfigOf) -> None:
        """Lock every directory for this process and load the logs in them. At least one must work."""
        for directory in self._directories:
            _unless_it_fails(directory, partial(self._take, directory, cluster_id))
        places = [Place(one.path, one.resources.strays, one.same_boot) for one in self.online]
        finish_moves(self._env.disk, places, self.any_missing)
        for directory in self.online:
            _unless_it_fails(directory, partial(directory.load, config_of))
        if not self.online:
            failures = "; ".join(str(directory.failure) for directory in self._directories)
            raise DirectoryRefused(f"None of the data directories can be used: {failures}")
        self._loaded = True

    def _take(self, directory: LogDirectory, cluster_id: str) -> None:
        directory.open(cluster_id, self._node_id)
        self._opened.append(directory)

    @property
    def may_have_lost(self) -> bool:
        """Whether records that this broker had confirmed may be lost."""
        return any(directory.may_have_lost for directory in self._directories)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the directories that can be used."""
        return tuple(directory.directory_id for directory in self.online)

    def trust(self) -> None:
        """Call `LogDirectory.trust` for all directories. Blocking."""
        for directory in self.online:
            directory.trust()

    @property
    def any_missing(self) -> bool:
        """Whether a directory is offline, so that a log which is not here may be there."""
        return len(self.online) < len(self._directories)

    def check_no_log_twice(self) -> None:
        """Refuse two copies of a log: an operator must decide. Call it after deleted topics were removed."""
        seen: dict[TopicPartition, LogDirectory] = {}
        for directory in self.online:
            for partition in directory.logs:
                if partition in seen:
                    raise DirectoryRefused(
                        f"{partition} lies in {seen[partition].path} and in {directory.path}. Move one away."
                    )
                seen[partition] = directory

    def open_log(
        self, partition: TopicPartition, topic_id: TopicId, config: LogConfig, start_offset: int = 0
    ) -> Log:
        """The log of a partition, created if there is none. One of another topic of this name is set aside."""
        directory = self._holder(partition)
        if directory is not None:
            log = directory.logs[partition]
            if log.topic_id == NO_TOPIC_ID:
                logger.warning("%s has no topic id; by its name it belongs to %s", log.directory, partition)
                log.adopt(topic_id)
            if log.topic_id == topic_id:
                log.update_config(config)
                return log
            directory.set_log_aside(partition, "another topic has its name now")
        if not self.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "All data directories are offline")
        open_ones = [one for one in self.online if not self.is_cordoned(one)] or self.online
        emptiest = min(open_ones, key=lambda directory: len(directory.logs))
        return emptiest.create_log(partition, topic_id, config, start_offset)

    def is_cordoned(self, directory: LogDirectory) -> bool:
        return os.path.abspath(os.path.dirname(directory.path)) in self.cordoned

    def holds(self, partition: TopicPartition) -> bool:
        return self._holder(partition) is not None

    def lies_in_a_failed_one(self, partition: TopicPartition, topic_id: TopicId) -> bool:
        """Whether a directory that has failed had the log."""
        failed = [directory for directory in self._directories if directory.failure is not None]
        logs = [directory.logs[partition] for directory in failed if partition in directory.logs]
        return any(log.topic_id in (topic_id, NO_TOPIC_ID) for log in logs)

    def holds_all(self, partition: TopicPartition) -> bool:
        """Whether the log is here, and not shorter than at the last record of its length."""
        directory = self._holder(partition)
        return directory is not None and partition not in directory.shorter

    def delete_log(self, partition: TopicPartition) -> None:
        """Delete a log. One in an offline directory stays: the next start finds that its topic was deleted."""
        directory = self._holder(partition)
        if directory is not None:
            _unless_it_fails(directory, partial(directory.delete_log, partition))

    def set_moved_aside(self, partition: TopicPartition) -> None:
        """Set a log aside whose partition has moved to other brokers: it is kept for a while, but not used."""
        directory = self._holder(partition)
        if directory is not None:
            _unless_it_fails(directory, partial(directory.set_moved_aside, partition))

    def set_strays_aside(self, why_stray: Callable[[Log], str | None]) -> int:
        """Set aside the logs for which there is a reason; returns their number."""
        logs = [(directory, log) for directory in self.online for log in directory.logs.values()]
        strays = [(directory, log, why) for directory, log in logs if (why := why_stray(log)) is not None]
        for directory, log, why in strays:
            directory.set_log_aside(log.partition, why)
        return len(strays)

    def known_end(self, partition: TopicPartition, topic_id: TopicId) -> int:
        """The end that a log which is not here had at the last checkpoint; 0 if that is unknown."""
        return max(directory.known_end(partition, topic_id) for directory in self.online)

    def _holder(self, partition: TopicPartition) -> LogDirectory | None:
        return next((directory for directory in self.online if partition in directory.logs), None)

    def checkpoint(self) -> None:
        """Write the checkpoints of every directory; an error in one is raised after the others are done."""
        failures: list[OSError | KafkaError] = []
        for directory in self.online:
            try:
                directory.flush_rolled()
                directory.checkpoint()
            except (OSError, KafkaError) as error:
                if isinstance(error, OSError):
                    directory.judge(error)
                failures.append(error)
        if failures:
            raise failures[0]

    async def remove_deleted(self) -> None:
        for directory in self.online:
            work = directory.take_removable()
            if work is not None:
                await self._env.run_blocking(work)

    async def remove_strays(self, keep_ms: int, keep_moved_ms: int) -> None:
        """Remove the logs that were set aside for longer than these times."""
        for directory in self.online:
            strays = directory.resources.strays
            if due := [*strays.take_due(keep_ms), *strays.take_due(keep_moved_ms, MOVED)]:
                await self._env.run_blocking(partial(strays.remove, due))

    def close(self) -> None:
        """Close the directories. If not all logs were loaded, the next start has to recover them."""
        for directory in self._opened:
            directory.close(clean=self._loaded)
        self._opened = []


def _unless_it_fails(directory: LogDirectory, step: Callable[[], None]) -> None:
    try:
        step()
    except OSError as error:
        directory.fail(error)

"""All data directories of a broker as one: a new log goes where the fewest are."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence

from headrace.env import Env
from headrace.model.topics import NO_TOPIC_ID, TopicId, TopicPartition
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directory import ConfigOf, DirectoryRefused, LogDirectory


class LogDirectories:
    """Opening, loading, checkpointing and closing block: they belong at start, at stop, or in a thread."""

    def __init__(self, env: Env, paths: Sequence[str], node_id: int, producer_expiration_ms: int) -> None:
        self._env = env
        self._node_id = node_id
        self._directories = [
            LogDirectory(env, os.path.join(path, f"broker-{node_id}"), producer_expiration_ms) for path in paths
        ]
        self._opened: list[LogDirectory] = []
        self._loaded = False

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    def open(self, cluster_id: str, config_of: ConfigOf) -> None:
        """Take every directory for this process and bring back the logs in them."""
        for directory in self._directories:
            directory.open(cluster_id, self._node_id)
            self._opened.append(directory)
        for directory in self._directories:
            directory.load(config_of)
        self._check_no_log_twice()
        self._loaded = True

    def _check_no_log_twice(self) -> None:
        seen: dict[TopicPartition, LogDirectory] = {}
        for directory in self._directories:
            for partition in directory.logs:
                if partition in seen:
                    raise DirectoryRefused(
                        f"{partition} lies in {seen[partition].path} and in {directory.path}. Move one away."
                    )
                seen[partition] = directory

    def open_log(self, partition: TopicPartition, topic_id: TopicId, config: LogConfig) -> Log:
        """The log of a partition, made if there is none. One of an earlier topic of the same name is removed."""
        directory = self._holder(partition)
        if directory is not None:
            log = directory.logs[partition]
            if log.topic_id == NO_TOPIC_ID:
                log.adopt(topic_id)
            if log.topic_id == topic_id:
                log.update_config(config)
                return log
            directory.delete_log(partition)
        emptiest = min(self._directories, key=lambda directory: len(directory.logs))
        return emptiest.create_log(partition, topic_id, config)

    def delete_log(self, partition: TopicPartition) -> None:
        directory = self._holder(partition)
        assert directory is not None, partition
        directory.delete_log(partition)

    def partitions(self) -> list[TopicPartition]:
        return [partition for directory in self._directories for partition in directory.logs]

    def _holder(self, partition: TopicPartition) -> LogDirectory | None:
        return next((directory for directory in self._directories if partition in directory.logs), None)

    def checkpoint(self) -> None:
        for directory in self._directories:
            directory.flush_rolled()
            directory.checkpoint()

    async def remove_deleted(self) -> None:
        for directory in self._directories:
            work = directory.take_removable()
            if work is not None:
                await self._env.run_blocking(work)

    def close(self) -> None:
        """A directory whose logs were not all brought back is left for the next start to recover."""
        for directory in self._opened:
            directory.close(clean=self._loaded)
        self._opened = []

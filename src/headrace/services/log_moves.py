"""Moves of logs between the data directories of this broker (AlterReplicaLogDirs, KIP-113).

A future log in the new directory takes over the batches as a follower would, in a thread, while the old one goes
on taking and serving records. When it is nearly level, the rest is copied and the two are swapped on the loop,
between two requests, so that nobody sees anything of it. `storage.moving` says what a crash leaves.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial

from headrace.env import Env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.replication.partition import Partition
from headrace.storage.files import FileRange
from headrace.storage.loading import create_log
from headrace.storage.log import Log
from headrace.storage.log_directories import LogDirectories
from headrace.storage.log_directory import LogDirectory
from headrace.storage.moving import future_path, moved_path, swap
from headrace.storage.resources import StorageResources

log = logging.getLogger(__name__)

CHUNK_BYTES = 4 * 1024 * 1024
LEVEL_BYTES = 128 * 1024
"""What may be left to copy on the loop."""


@dataclass(slots=True)
class Move:
    partition: Partition
    old: LogDirectory
    new: LogDirectory
    future: Log | None = None
    task: asyncio.Task[None] | None = None

    @property
    def is_copying(self) -> bool:
        """No longer true once the two are swapped and only the old files are left to remove."""
        return self.future is not None and self.partition.log is not self.future

    @property
    def lag(self) -> int:
        """In records, as DescribeLogDirs reports it."""
        return self.partition.log.end_offset - (self.future.end_offset if self.future is not None else 0)


class LogMoves:
    def __init__(self, env: Env, directories: LogDirectories) -> None:
        self._env = env
        self._directories = directories
        self._moves: dict[TopicPartition, Move] = {}

    def into(self, directory: LogDirectory) -> list[Move]:
        """The moves under way that have begun to write there."""
        return [move for move in self._moves.values() if move.new is directory and move.is_copying]

    def start(self, partition: Partition, new: LogDirectory) -> None:
        """Move the log there, unless it is there or on its way. A move to elsewhere is given up for it."""
        name = partition.topic_partition
        under_way = self._moves.get(name)
        if under_way is not None:
            if under_way.new is new:
                return
            self._cancel(under_way)
        old = next((directory for directory in self._directories.online if name in directory.logs), None)
        if old is None or new.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if old is not new:
            move = self._moves[name] = Move(partition, old, new)
            move.task = self._env.background.start(f"Moving {name}", self._run(move))

    def close(self) -> None:
        """Incomplete copies are removed at the next start."""
        for move in list(self._moves.values()):
            self._cancel(move)

    def _cancel(self, move: Move) -> None:
        if move.task is not None:
            move.task.cancel()
        self._moves.pop(move.partition.topic_partition, None)

    async def _run(self, move: Move) -> None:
        name = move.partition.topic_partition
        source = move.partition.log
        try:
            future = move.future = await self._env.run_blocking(lambda: self._begin(move))
            await self._catch_up(move, source, future)
            # Now, so that little is left to sync after the swap; not again, or a busy producer keeps us from it.
            await self._env.run_blocking(future.flush)
            await self._catch_up(move, source, future)
            self._swap(move, source, future)
            log.info("%s moved from %s to %s", name, move.old.path, move.new.path)
            await self._env.run_blocking(lambda: self._finish(move, future))
        except (OSError, KafkaError) as error:
            log.warning("%s stays in %s: moving it to %s failed: %s", name, move.old.path, move.new.path, error)
        finally:
            if self._moves.get(name) is move:
                del self._moves[name]

    def _begin(self, move: Move) -> Log:
        name, source = move.partition.topic_partition, move.partition.log
        path = future_path(move.new.path, name)
        if self._env.disk.exists(path):
            self._env.disk.remove_tree(path)
        # Caches of its own: until the swap the future log belongs to a thread.
        resources = StorageResources.create(self._env, path=move.new.path)
        start_offset = source.segments[0].base_offset
        return create_log(path, name, source.topic_id, source.config, resources, start_offset)

    async def _catch_up(self, move: Move, source: Log, future: Log) -> None:
        """Copy until little is left. The caller may swap at once: nothing is appended between."""
        while (found := self._next(move, source, future)) is not None:
            if found.size <= LEVEL_BYTES and future.end_offset >= source.active_base_offset:
                break
            before, cuts = future.end_offset, source.cuts
            await self._env.run_blocking(partial(self._copy, found, future))
            if source.cuts != cuts:
                future.truncate_to(before)  # what was read may be of the file before and after

    def _next(self, move: Move, source: Log, future: Log) -> FileRange | None:
        """What to copy next; None when the two are level."""
        if move.partition.log is not source or source.abandoned or move.new.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log, or the directory, is no longer there")
        _drop_what_was_cut(source, future)
        if future.end_offset < source.start_offset:
            future.truncate_fully_and_start_at(source.start_offset)
        return source.read(future.end_offset, CHUNK_BYTES, source.end_offset, at_least_one=True)

    def _copy(self, found: FileRange, future: Log) -> None:
        future.append_as_follower(self._env.disk.pread(found.file.fd, found.size, found.position))

    def _swap(self, move: Move, source: Log, future: Log) -> None:
        """On the loop, without an await: nothing is appended meanwhile."""
        while (found := self._next(move, source, future)) is not None:
            self._copy(found, future)
        if future.end_offset != source.end_offset:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log ends where no record batch does")
        name, partition = move.partition.topic_partition, move.partition
        future.delete_records_to(source.start_offset)
        future.set_leader_epochs(source.leader_epochs)
        future.set_producers(source.producers, -1)
        future.first_dirty_offset = source.first_dirty_offset
        future.update_config(source.config)
        swap(self._env.disk, move.old.path, move.new.path, name)
        source.abandon()
        future.relocate(f"{move.new.path}/{name}", move.new.resources)
        del move.old.logs[name]
        move.new.logs[name] = future
        partition.log = future
        if partition.flusher is not None:
            partition.flusher.appended()

    def _finish(self, move: Move, future: Log) -> None:
        """In a thread: the old files go only when the new ones are on the device."""
        future.flush()
        self._env.disk.fsync_directory(move.new.path)
        move.new.checkpoint()
        self._env.disk.remove_tree(moved_path(move.old.path, move.partition.topic_partition))


def _drop_what_was_cut(source: Log, future: Log) -> None:
    """While a thread copied, a follower may have been cut, and may be as long again. Found as followers find it:

    what has the same epoch and offset is the same: from the end, one epoch after the other is compared.
    """
    if source.end_offset < future.end_offset:
        future.truncate_to(source.end_offset)
    while future.end_offset > future.start_offset and future.leader_epochs.entries:
        epoch, began = future.leader_epochs.entries[-1]
        found, end_offset = source.leader_epochs.end_offset_for(epoch, source.end_offset)
        if found == epoch and future.end_offset <= end_offset:
            return
        future.truncate_to(end_offset if found == epoch and end_offset > began else began)

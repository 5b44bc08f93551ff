"""A log that moves between data directories, while it is cut and continued under the copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.env import Env
from headrace.env.real import real_env
from headrace.model.topics import NO_TOPIC_ID, TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.records.reader import read_records
from headrace.services import log_moves
from headrace.services.log_moves import LEVEL_BYTES, LogMoves
from headrace.storage.loading import create_log
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directories import LogDirectories
from headrace.storage.resources import StorageResources
from headrace.storage.scan import split_batches

NAME = TopicPartition("t", 0)
PADDING = bytes(LEVEL_BYTES)
"""As a key: less than this is copied with the swap."""


class World:
    """A partition in one of two directories; what runs before and after each work of a thread is the test's."""

    def __init__(self, root: Path) -> None:
        self.before: Callable[[], None] = lambda: None
        self.meanwhile: Callable[[], None] = lambda: None
        real = real_env()
        self.env: Env = replace(real, start_blocking=self._inline)
        self.old, self.new = (self._directory(root / name) for name in ("a", "b"))
        path = f"{self.old.path}/{NAME}"
        self.log = create_log(path, NAME, NO_TOPIC_ID, LogConfig(), self.old.resources)
        self.old.logs[NAME] = self.log
        self.partition: Any = SimpleNamespace(topic_partition=NAME, log=self.log, flusher=None)
        self.moves = LogMoves(self.env, cast(LogDirectories, SimpleNamespace(online=[self.old, self.new])))

    def _directory(self, path: Path) -> Any:
        path.mkdir()
        (path / ".future").mkdir()
        resources = StorageResources.create(self.env, path=str(path))
        return SimpleNamespace(path=str(path), logs={}, failure=None, resources=resources, checkpoint=lambda: None)

    def _inline(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.before()
        done.set_result(work())
        self.meanwhile()
        return done

    def append(self, epoch: int, *values: bytes) -> None:
        for value in values:
            self.log.append_as_leader(bytearray(build_batch([NewRecord(value, PADDING)])), epoch)

    async def move(self) -> Log:
        self.moves.start(self.partition, self.new)
        await self.moves._moves[NAME].task  # type: ignore[misc]
        assert self.new.logs == {NAME: self.partition.log}
        return cast(Log, self.partition.log)


def records(log: Log) -> list[bytes | None]:
    values = []
    offset = log.start_offset
    while offset < log.end_offset:
        found = log.read(offset, 1, log.end_offset, at_least_one=True)
        assert found is not None
        data = memoryview(real_env().disk.pread(found.file.fd, found.size, found.position))
        for position, size in split_batches(data):
            for record in read_records(data[position : position + size]):
                values.append(record.value)
                offset = record.offset + 1
    return values


@pytest.mark.parametrize("kept", [0, 2, 4])
async def test_a_follower_that_is_cut_meanwhile_takes_what_its_leader_has(tmp_path: Path, kept: int) -> None:
    """The copy kept what the log had lost, under the offsets and epochs of the records that came in its place."""
    world = World(tmp_path)
    world.append(1, b"0", b"1")
    world.append(2, b"2", b"3", b"4")

    def cut() -> None:
        if any(held.is_copying and held.lag == 0 for held in world.moves.into(world.new)):
            world.meanwhile = lambda: None
            world.log.truncate_to(kept)
            world.append(3, *(b"new %d" % offset for offset in range(kept, 6)))

    world.meanwhile = cut
    moved = await world.move()
    assert records(moved) == [b"%d" % offset for offset in range(kept)] + [
        b"new %d" % offset for offset in range(kept, 6)
    ]
    assert moved.leader_epochs.entries[-1] == (3, kept)


async def test_what_was_read_while_the_file_changed_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of it was of the new leader's records, behind what that leader never had."""
    world = World(tmp_path)
    world.append(1, b"0", b"1")
    world.append(2, b"2", b"3")
    monkeypatch.setattr(log_moves, "CHUNK_BYTES", world.log.size)
    world.append(2, b"4", b"5")

    def cut() -> None:
        if any(held.lag == 2 for held in world.moves.into(world.new)):
            world.before = lambda: None
            world.log.truncate_to(2)
            world.append(3, b"C", b"D", b"E", b"F")

    world.before = cut
    assert records(await world.move()) == [b"0", b"1", b"C", b"D", b"E", b"F"]

"""A world for storage tests: real files in a temporary directory, a clock that stands still."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headrace.env import Env, Timer
from headrace.env.real import RealDisk
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.batch import TRANSACTIONAL, BatchHeader, parse_header
from headrace.records.builder import NO_PRODUCER, NewRecord, ProducerStamp, build_batch
from headrace.records.markers import EndMarker
from headrace.storage.files import FileRange
from headrace.storage.load_hints import LoadHints
from headrace.storage.loading import create_log, load_log
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.producer_state import VerificationGuard
from headrace.storage.resources import StorageResources
from headrace.storage.scan import split_batches

T = TypeVar("T")
START_MS = 1_700_000_000_000
PARTITION = TopicPartition("t", 0)


class StillClock:
    def __init__(self) -> None:
        self.now_ms = START_MS

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def boottime(self) -> float:
        return self.monotonic()

    def wall_ms(self) -> int:
        return self.now_ms

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        raise AssertionError("storage sets no timers")

    def call_soon(self, callback: Callable[[], object]) -> object:
        raise AssertionError("storage schedules nothing")

    async def sleep(self, delay: float) -> None:
        self.now_ms += int(delay * 1000)


class CountingRng:
    def __init__(self) -> None:
        self._count = itertools.count()

    def bytes(self, count: int) -> bytes:
        return next(self._count).to_bytes(count, "big")

    def randrange(self, stop: int) -> int:
        return next(self._count) % stop

    def random(self) -> float:
        return 0.5


def run_in_line(work: Callable[[], T]) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(work())
    return future


@dataclass
class Store:
    """A place for one log, and the ways to make, reopen and look at it."""

    directory: str
    clock: StillClock
    env: Env
    resources: StorageResources
    log: Log

    def create(self, **settings: Any) -> Log:
        self.log = create_log(
            self.directory, PARTITION, TopicId(b"0123456789abcdef"), LogConfig(**settings), self.resources
        )
        return self.log

    def reopen(self, clean: bool = False, recovery_point: int = 0, start_offset: int = 0, **settings: Any) -> Log:
        """As after a crash, or, where the log was closed before, after a clean stop."""
        if not clean:
            self.log.abandon()
        config = LogConfig(**settings) if settings else self.log.config
        return self.load(LoadHints(clean, start_offset, self.log.end_offset if clean else recovery_point), config)

    def load(self, hints: LoadHints, config: LogConfig | None = None) -> Log:
        config = config or self.log.config
        self.resources = StorageResources.create(self.env)
        self.log = load_log(self.directory, PARTITION, self.log.topic_id, config, self.resources, hints)
        return self.log

    def files(self, suffix: str) -> list[Path]:
        return sorted(Path(self.directory).glob(f"*{suffix}"))

    def batch(
        self, count: int = 1, *, value: bytes = b"v" * 40, at: int | None = None, **fields: Any
    ) -> bytearray:
        timestamp = self.clock.now_ms if at is None else at
        return build_batch([NewRecord(value, timestamp=timestamp)] * count, **fields)

    def append(self, count: int = 1, epoch: int = 0, **fields: Any) -> int:
        batch = self.batch(count, **fields)
        return self.log.append_as_leader(memoryview(batch), epoch, self.verified(batch)).base_offset

    def verified(self, batch: bytearray) -> VerificationGuard | None:
        """As if the coordinator of the batch's transaction had agreed."""
        header = parse_header(batch)
        if not header.attributes & TRANSACTIONAL:
            return None
        return self.log.start_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, bumps_epochs=False
        )

    def end(self, producer_id: int, commit: bool = True, producer_epoch: int = 0, epoch: int = 0) -> int:
        """End a transaction; the offset of the marker."""
        marker = EndMarker(producer_id, producer_epoch, commit, coordinator_epoch=0)
        return self.log.append_marker(marker, epoch).base_offset

    def produce(self, sequence: int, count: int = 1, producer_id: int = 7, producer_epoch: int = 0) -> int:
        return self.append(count, producer=ProducerStamp(producer_id, producer_epoch, sequence))

    def headers(self, from_offset: int | None = None) -> list[BatchHeader]:
        """Every batch of the log by way of reads."""
        offset = self.log.start_offset if from_offset is None else from_offset
        found = []
        while offset < self.log.end_offset:
            data = self.bytes_of(self.log.read(offset, 1 << 20, self.log.end_offset, at_least_one=True))
            headers = [parse_header(data, position) for position, _ in split_batches(memoryview(data))]
            assert headers, f"a read at {offset} got no whole batch"
            found += headers
            offset = headers[-1].next_offset
        return found

    def bytes_of(self, found: FileRange | None) -> bytes:
        assert found is not None
        data = os.pread(found.file.fd, found.size, found.position)
        assert len(data) == found.size
        return data


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def env(clock: StillClock) -> Env:
    return Env(clock=clock, disk=RealDisk(), rng=CountingRng(), start_blocking=run_in_line)


@pytest.fixture
def store(tmp_path: Path, clock: StillClock, env: Env) -> Store:
    resources = StorageResources.create(env)
    directory = str(tmp_path / "t-0")
    log = create_log(directory, PARTITION, TopicId(b"0123456789abcdef"), LogConfig(), resources)
    return Store(directory, clock, env, resources, log)


@pytest.fixture
def no_producer() -> ProducerStamp:
    return NO_PRODUCER

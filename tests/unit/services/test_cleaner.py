"""R-LOG-5: the cleaner as a service: what it chooses, swaps, aborts, sets aside and tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.env import Env
from headrace.env.real import RealDisk, real_env
from headrace.env.worker_process import WorkerProcess
from headrace.metrics.exposition import render
from headrace.model.topics import TopicId, TopicPartition
from headrace.node import COMPACTION_WORKER
from headrace.records.builder import NewRecord, build_batch
from headrace.replication.host import PartitionHost
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.services.cleaner import Cleaner, Worker
from headrace.storage.checkpoints import CLEANER_OFFSETS, read_offsets
from headrace.storage.compaction.messages import (
    CleaningFailure,
    CleaningRequest,
    WorkerReply,
    decode_request,
    encode_reply,
)
from headrace.storage.compaction.worker import Usage, clean
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directories import LogDirectories
from headrace.testing.in_process import LoopGuardDisk
from tests.unit.storage.compaction_shell import latest, stored_records

COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.1)
TOPIC_ID = TopicId(b"0123456789abcdef")
PATIENCE_S = 60.0


class InlineWorker:
    """A worker in the same process, whose replies wait until they are let through."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.requests: list[CleaningRequest] = []
        self.killed = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: CleaningFailure | None = None

    async def tell(self, line: bytes) -> None:
        request = decode_request(line)
        self.requests.append(request)
        work = clean(request, self._env.disk, lambda size: None, Usage(lambda: 0.0, lambda: 0))
        replies: list[WorkerReply] = [self.failure] if self.failure is not None else list(work)
        for reply in replies:
            self._lines.put_nowait(encode_reply(reply))

    async def hear(self) -> bytes:
        await self.gate.wait()
        return b"" if self.killed else await self._lines.get()

    def kill(self) -> None:
        self.killed = True
        self.gate.set()

    async def close(self) -> None:
        pass


class Bench:
    """A cleaner over real logs, with workers in line."""

    def __init__(self, env: Env, root: Path, **settings: str) -> None:
        self.env = env
        self.directories = LogDirectories(env, [str(root)], 1)
        self.directories.open("cluster", lambda partition, topic_id: COMPACTED)
        self.replicas = ReplicaSet(
            PartitionHost(1, self.env.clock), env, self.directories, lambda topic, image: COMPACTED
        )
        self.workers: list[InlineWorker] = []
        self.on_worker: Callable[[InlineWorker], None] = lambda worker: None
        flags = {"log.dirs": str(root), "log.cleaner.backoff.ms": "10"}
        flags |= {name.replace("_", "."): value for name, value in settings.items()}
        self.dynamic: dict[str, dict[str, str]] = {}
        self.cleaner = Cleaner(
            env,
            BrokerConfig.build(flags=flags),
            lambda: self.dynamic,
            self.directories,
            self.replicas,
            self.start_worker,
        )

    async def start_worker(self) -> Worker:
        worker = InlineWorker(self.env)
        self.on_worker(worker)
        self.workers.append(worker)
        return worker

    def add(self, name: str, config: LogConfig = COMPACTED) -> Log:
        held = self.directories.open_log(TopicPartition(name, 0), TOPIC_ID, config)
        partition = Partition(TopicPartition(name, 0), TOPIC_ID, held, PartitionHost(1, self.env.clock))
        partition.high_watermark = 10**9
        self.replicas.by_name[name.encode()] = {0: partition}
        return held

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = self.env.clock.monotonic() + PATIENCE_S
        while not condition():
            assert self.env.clock.monotonic() < deadline, "it does not come"
            await self.env.clock.sleep(0.005)


def fill(held: Log, keys: int = 5, records: int = 50) -> dict[bytes | None, bytes | None]:
    for number in range(records):
        record = NewRecord(b"%d" % number, b"k%d" % (number % keys), held._resources.env.clock.wall_ms())
        held.append_as_leader(memoryview(build_batch([record])), 0)
    held.roll()
    return latest(stored_records(held))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(real_env(), tmp_path)
    yield made
    made.directories.close()


@pytest.fixture
async def running(bench: Bench) -> AsyncIterator[Bench]:
    task = asyncio.create_task(bench.cleaner.run())
    yield bench
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_dirty_log_is_cleaned_checkpointed_and_told_of(
    running: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    held = running.add("t")
    expected = fill(held)
    await running.until(lambda: held.first_dirty_offset == 50 and held.cleaning is None)
    assert [record.offset for record in stored_records(held)] == [45, 46, 47, 48, 49]
    assert latest(stored_records(held)) == expected
    (directory,) = running.directories
    path = f"{directory.path}/{CLEANER_OFFSETS}"
    assert Path(path).read_text() == "0\n1\nt 0 50\n"
    assert read_offsets(running.env.disk, path) == {TopicPartition("t", 0): 50}
    assert "t-0: compacted up to offset 50" in caplog.text
    shown = render(running.cleaner.families())
    assert "headrace_cleaner_cleanings_total 1\n" in shown
    assert "headrace_cleaner_records_kept_total 5\n" in shown


async def test_the_dirtiest_log_comes_first(bench: Bench) -> None:
    small, large = bench.add("small"), bench.add("large")
    bench.add("plain", LogConfig())
    for held in (small, large):
        fill(held)
        held.first_dirty_offset = 50
    fill(small, records=20)
    fill(large, records=40)
    chosen = bench.cleaner._choose()
    assert chosen is not None
    assert chosen[1].log is large
    assert bench.cleaner.totals.dirtiest_ratio == pytest.approx(chosen[1].ratio)


async def test_a_topic_deleted_during_its_cleaning_kills_the_worker(running: Bench) -> None:
    running.on_worker = lambda worker: worker.gate.clear()
    held = running.add("t")
    fill(held)
    await running.until(lambda: bool(running.workers) and bool(running.workers[0].requests))
    running.directories.delete_log(TopicPartition("t", 0))
    del running.replicas.by_name[b"t"]
    await running.until(lambda: held.cleaning is None)
    assert running.workers[0].killed
    assert running.cleaner.totals.cleanings == 0
    assert running.cleaner.totals.failures == 0


async def test_a_log_cut_during_its_cleaning_keeps_nothing_of_it(running: Bench) -> None:
    running.on_worker = lambda worker: worker.gate.clear()
    held = running.add("t")
    fill(held)
    await running.until(lambda: bool(running.workers) and bool(running.workers[0].requests))
    running.replicas.by_name.clear()
    held.truncate_to(20)
    await running.until(lambda: held.cleaning is None)
    assert held.end_offset == 20
    assert len(stored_records(held)) == 20
    assert not list(Path(held.directory).glob("*.cleaned"))


async def test_damage_sets_a_log_aside_and_others_go_on(running: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def fail_first(worker: InlineWorker) -> None:
        if not running.workers:
            worker.failure = CleaningFailure("no valid batch at position 7", is_damage=True)

    running.on_worker = fail_first
    bad = running.add("bad")
    fill(bad)
    await running.until(lambda: running.cleaner.totals.failures == 1)
    good = running.add("good")
    fill(good)
    await running.until(lambda: good.first_dirty_offset == 50)
    assert "bad-0: compaction failed and will not be tried again before a restart: no valid batch" in caplog.text
    assert "headrace_cleaner_uncleanable_partitions 1\n" in render(running.cleaner.families())
    assert len(stored_records(bad)) == 50


async def test_a_worker_that_dies_is_replaced_and_the_log_rests(running: Bench) -> None:
    def die_first(worker: InlineWorker) -> None:
        if not running.workers:
            worker.kill()

    running.on_worker = die_first
    held = running.add("t")
    fill(held)
    await running.until(lambda: running.cleaner.totals.failures == 1)
    running.cleaner._resting.clear()
    await running.until(lambda: held.first_dirty_offset == 50)
    assert len(running.workers) == 2


class NoSwapDisk(RealDisk):
    """Fails to sync a directory in which a swap has been decided."""

    def fsync_directory(self, path: str) -> None:
        if list(Path(path).glob("*.swap")):
            raise OSError("the device is gone")
        super().fsync_directory(path)


async def test_a_swap_whose_decision_cannot_be_synced_is_taken_back(tmp_path: Path) -> None:
    bench = Bench(replace(real_env(), disk=NoSwapDisk()), tmp_path)
    held = bench.add("t")
    fill(held)
    chosen = bench.cleaner._choose()
    assert chosen is not None
    assert not await bench.cleaner._clean(await bench.start_worker(), *chosen)
    assert bench.cleaner.totals.failures == 1
    assert len(stored_records(held)) == 50
    left = {path.suffix for path in Path(held.directory).iterdir()}
    assert not left & {".swap", ".cleaned"}
    bench.directories.close()


async def test_limits_are_shared_and_can_change_while_running(tmp_path: Path) -> None:
    bench = Bench(real_env(), tmp_path, log_cleaner_threads="2", log_cleaner_dedupe_buffer_size="4194304")
    held = bench.add("t")
    fill(held)
    chosen = bench.cleaner._choose()
    assert chosen is not None
    request = bench.cleaner._request(chosen[1])
    assert (request.memory_bytes, request.bytes_per_second) == (2097152, 0.0)
    bench.dynamic = {"": {"log.cleaner.io.max.bytes.per.second": "1000"}}
    assert bench.cleaner._request(chosen[1]).bytes_per_second == 500.0
    bench.directories.close()


async def test_switched_off_it_does_nothing_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(real_env(), tmp_path, log_cleaner_enable="false")
    fill(bench.add("t"))
    await asyncio.wait_for(bench.cleaner.run(), 60)
    assert "log.cleaner.enable=false" in caplog.text
    assert not bench.workers
    bench.directories.close()


async def test_the_real_worker_can_be_throttled_and_the_loop_never_waits_for_the_disk(tmp_path: Path) -> None:
    disk = LoopGuardDisk()
    bench = Bench(replace(real_env(), disk=disk), tmp_path)
    held = bench.add("t")
    for number in range(300):
        record = NewRecord(bytes(10_000), b"k%d" % (number % 5))
        held.append_as_leader(memoryview(build_batch([record])), 0)
    held.roll()
    chosen = bench.cleaner._choose()
    assert chosen is not None
    bench.dynamic = {"": {"log.cleaner.io.max.bytes.per.second": "6000000"}}
    worker = await WorkerProcess.start(COMPACTION_WORKER)
    disk.on_loop_calls.clear()
    started = bench.env.clock.monotonic()
    assert await bench.cleaner._clean(worker, *chosen)
    # Three megabytes are read twice.
    assert bench.env.clock.monotonic() - started > 0.7
    assert len(stored_records(held)) == 5
    assert bench.cleaner.totals.peak_memory_bytes > 1_000_000
    assert not disk.on_loop_calls
    assert "fsync_directory" in disk.off_loop_calls
    await worker.close()
    assert await worker.hear() == b"", "it ends with its input"
    bench.directories.close()

"""R-LOG-7, whole data directories: damage anywhere, a crash at every step of work and of recovery, a wrong clock.

Every start succeeds, or says what an operator must decide. What is served is what was written, in its place: the
longest valid prefix.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.env import Env
from headrace.env.real import RealDisk
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.batch import checked_header
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.storage.identity import DirectoryRefused
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directory import LogDirectory
from headrace.storage.scan import split_batches
from headrace.testing.crashing_disk import Crash, CrashingDisk
from tests.unit.storage.conftest import CountingRng, run_in_line

FLIPS = 1000
NAMES = [TopicPartition("a", 0), TopicPartition("b", 3)]
ID = TopicId(b"0123456789abcdef")
SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100, retention_bytes=-1, retention_ms=-1)
CLUSTER = "cluster-1"


class QuickDisk(RealDisk):
    """Nothing here loses power, so nothing needs to wait for the device."""

    def fsync(self, fd: int) -> None:  # type: ignore[override]  # the real one is a static function
        pass

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]  # as above
        pass

    def fsync_directory(self, path: str) -> None:
        pass


@pytest.fixture
def env(clock: Any) -> Env:
    return Env(clock=clock, disk=QuickDisk(), rng=CountingRng(), start_blocking=run_in_line)


def config_of(partition: TopicPartition, topic_id: TopicId) -> LogConfig:
    return SMALL


def opened(env: Env, path: Path) -> LogDirectory:
    directory = LogDirectory(env, str(path))
    directory.open(CLUSTER, 1)
    directory.load(config_of)
    return directory


def append(log: Log, number: int, clock: Any) -> None:
    record = NewRecord(b"value-%d" % number, b"key", clock.now_ms)
    batch = build_batch([record], producer=ProducerStamp(7, 0, number))
    log.append_as_leader(memoryview(batch), 0)


def served(log: Log, env: Env) -> dict[int, bytes]:
    """Every batch by base offset, as readers get them; each whole, and in its place."""
    found: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        piece = log.read(offset, 1 << 20, log.end_offset, at_least_one=True)
        assert piece is not None
        data = env.disk.pread(piece.file.fd, piece.size, piece.position)
        for position, size in split_batches(memoryview(data)):
            header = checked_header(memoryview(data)[position : position + size])
            assert header.base_offset == offset
            # All but the leader epoch, which no CRC covers.
            found[offset] = data[position : position + 12] + data[position + 16 : position + size]
            offset = header.next_offset
    return found


def abandon(directory: LogDirectory) -> None:
    directory.close(clean=False)


class Snapshot:
    """The files of a directory, to be put back as they were."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}

    def restore(self) -> None:
        for file in self.path.rglob("*"):
            if file.is_file() and file not in self.files:
                file.unlink()
        for file, content in self.files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists() or file.read_bytes() != content:
                file.write_bytes(content)


@pytest.mark.parametrize("clean", [False, True])
def test_a_thousand_bit_flips_anywhere(env: Env, tmp_path: Path, clock: Any, clean: bool) -> None:
    """After a crash all of the log is verified; after a clean stop the damage must be seen where it is read."""
    path = tmp_path / "data"
    directory = opened(env, path)
    for name in NAMES:
        log = directory.create_log(name, ID, SMALL)
        for number in range(12):
            clock.now_ms += 10
            append(log, number, clock)
    written = {name: served(directory.logs[name], env) for name in NAMES}
    directory.close(clean=clean)
    snapshot = Snapshot(path)
    files = sorted(file for file, content in snapshot.files.items() if content and file.name != ".lock")
    rng = random.Random(11)
    refusals: list[tuple[str, str]] = []
    for _ in range(FLIPS if not clean else FLIPS // 4):
        victim = files[rng.randrange(len(files))]
        if clean and victim.suffix == ".log":
            continue  # nothing is read again after a clean stop: the reader's own CRC check is what is left
        damaged = bytearray(snapshot.files[victim])
        bit = rng.randrange(len(damaged) * 8)
        damaged[bit // 8] ^= 1 << bit % 8
        victim.write_bytes(damaged)
        again = LogDirectory(env, str(path))
        try:
            again.open(CLUSTER, 1)
            again.load(config_of)
        except DirectoryRefused as refusal:
            refusals.append((victim.name, str(refusal)))
        else:
            for name in NAMES:
                check_prefix(again.logs[name], written[name], env, may_lose=victim.suffix == ".log")
        finally:
            abandon(again)
            snapshot.restore()
    assert len(refusals) < FLIPS / 10
    assert all(name == "meta.properties" and str(path) in message for name, message in refusals)


def check_prefix(log: Log, written: dict[int, bytes], env: Env, may_lose: bool) -> None:
    found = served(log, env)
    assert found.items() <= written.items()
    assert list(found) == list(range(log.start_offset, log.end_offset))
    if not may_lose:
        assert log.end_offset == len(written)


class Life:
    """What a broker does to a directory, and what it has acknowledged so far."""

    def __init__(self, env: Env, path: Path, clock: Any) -> None:
        self.env = env
        self.path = path
        self.clock = clock
        self.acknowledged = 0
        self.start_offset = 0
        self.second_deleted = False

    def run(self) -> None:
        directory = opened(self.env, self.path)
        first, second = (directory.create_log(name, ID, SMALL) for name in NAMES)
        for number in range(20):
            self.clock.now_ms += 10
            append(first, number, self.clock)
            self.acknowledged = number + 1
            append(second, number, self.clock)
            if number == 9:
                first.flush()
                directory.checkpoint()
            if number == 12:
                self.start_offset = first.segments[1].base_offset
                first.remove_first_segments(1)
        self.second_deleted = True
        directory.delete_log(NAMES[1])
        work = directory.take_removable()
        if work is not None:
            work()
        directory.checkpoint()
        directory.close()


def test_a_crash_at_every_step_of_work(env: Env, tmp_path: Path, clock: Any) -> None:
    """Appends, rolls, retention, flushes, checkpoints, the deletion of a topic, a clean stop."""
    counting = CrashingDisk()
    Life(replace(env, disk=counting), tmp_path / "count", clock).run()
    assert counting.calls > 100
    for crash_at in range(1, counting.calls + 1):
        path = tmp_path / str(crash_at)
        life = Life(replace(env, disk=CrashingDisk(crash_at)), path, clock)
        with pytest.raises(Crash):
            life.run()
        check_survived(life, env, path)


def check_survived(life: Life, env: Env, path: Path) -> None:
    directory = opened(env, path)
    try:
        if life.acknowledged:
            log = directory.logs[NAMES[0]]
            found = served(log, env)
            assert log.end_offset >= life.acknowledged
            assert log.start_offset <= life.start_offset
            assert list(found) == list(range(log.start_offset, log.end_offset))
            if log.end_offset:
                assert log.producers.describe()[0].last_sequence == log.end_offset - 1
            append(log, log.end_offset, life.clock)
        left = {file.name for file in path.iterdir() if file.is_dir()}
        assert left <= {str(name) for name in NAMES}, "what was deleted is gone for good"
    finally:
        directory.close()


def test_a_crash_at_every_step_of_recovery(env: Env, tmp_path: Path, clock: Any) -> None:
    """Two crashes in a row, the second anywhere in the start that repairs the first."""
    path = tmp_path / "data"
    directory = opened(env, path)
    log = directory.create_log(NAMES[0], ID, SMALL)
    for number in range(12):
        clock.now_ms += 10
        append(log, number, clock)
    written = served(log, env)
    abandon(directory)
    last = sorted((path / str(NAMES[0])).glob("*.log"))[-1]
    last.write_bytes(last.read_bytes() + b"\0" * 90)
    for index in (path / str(NAMES[0])).glob("*.index"):
        index.write_bytes(b"garbage!" * 3)
    snapshot = Snapshot(path)
    counting = CrashingDisk()
    abandon(opened(replace(env, disk=counting), path))
    for crash_at in range(1, counting.calls + 1):
        snapshot.restore()
        with pytest.raises(Crash):
            opened(replace(env, disk=CrashingDisk(crash_at)), path)
        again = opened(env, path)
        assert served(again.logs[NAMES[0]], env) == written
        abandon(again)


@pytest.mark.parametrize("clean", [False, True])
def test_a_clock_set_back(env: Env, tmp_path: Path, clock: Any, clean: bool) -> None:
    """By a year: the start, offsets, appends and rolls go on, and retention deletes nothing that is not old."""
    path = tmp_path / "data"
    config = replace(SMALL, retention_ms=60_000, message_timestamp_after_max_ms=2**62)
    directory = opened(env, path)
    log = directory.create_log(NAMES[0], ID, config)
    for number in range(12):
        clock.now_ms += 10
        append(log, number, clock)
    directory.close(clean=clean)
    clock.now_ms -= 365 * 86_400_000
    again = LogDirectory(env, str(path))
    again.open(CLUSTER, 1)
    again.load(lambda partition, topic_id: config)
    log = again.logs[NAMES[0]]
    assert log.end_offset == 12
    for number in range(12, 24):
        append(log, number, clock)
    assert list(served(log, env)) == list(range(24))
    assert log.delete_expired(log.end_offset) == 0
    log.roll()
    clock.now_ms += 365 * 86_400_000 + 120_000
    assert log.delete_expired(log.end_offset)
    again.close()


def test_long_recoveries_tell_how_far_they_are(
    env: Env, tmp_path: Path, clock: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    directory = opened(env, path)
    log = directory.create_log(NAMES[0], ID, SMALL)
    for number in range(20):
        append(log, number, clock)
    abandon(directory)
    monkeypatch.setattr(clock, "monotonic", ticking(1.5))
    with caplog.at_level(logging.INFO):
        abandon(opened(env, path))
    assert any("verified 0 of 0 MB" in record.getMessage() for record in caplog.records)
    assert any("opened" in record.getMessage() for record in caplog.records)


def ticking(seconds: float) -> Callable[[], float]:
    now = [0.0]

    def monotonic() -> float:
        now[0] += seconds
        return now[0]

    return monotonic

"""The scrub: finds damage below the recovery point, whatever it is, reports it, and holds nobody up."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.env.real import real_env
from headrace.metrics.exposition import render
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.services.scrub import Scrub
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directories import LogDirectories
from headrace.storage.scrubbing import SLICE_BYTES
from headrace.testing.faulty_disk import FaultyDisk

TOPIC_ID = TopicId(b"0123456789abcdef")
CONFIG = LogConfig(segment_bytes=2000)
PATIENCE_S = 60.0
VALUE = b"v" * 100


class Bench:
    def __init__(self, root: Path, **settings: str) -> None:
        self.disk = FaultyDisk()
        self.env = replace(real_env(), disk=self.disk)
        self.directories = LogDirectories(self.env, [str(root)], 1)
        self.directories.open("cluster", lambda partition, topic_id: CONFIG)
        flags = {"headrace.scrub.bytes.per.second": "1000000000000"}
        flags |= {name.replace("_", "."): value for name, value in settings.items()}
        self.scrub = Scrub(self.env, BrokerConfig.build(flags=flags), self.directories)

    def add(self, name: str, config: LogConfig = CONFIG, batches: int = 50) -> Log:
        held = self.directories.open_log(TopicPartition(name, 0), TOPIC_ID, config)
        for _ in range(batches):
            held.append_as_leader(build_batch([NewRecord(VALUE, timestamp=1_700_000_000_000)] * 2), 0)
        return held

    async def scrubbed(self) -> dict[tuple[TopicPartition, int], str]:
        """What one more round finds."""
        rounds = self.scrub.totals.rounds
        task = asyncio.create_task(self.scrub.run())
        deadline = self.env.clock.monotonic() + PATIENCE_S
        while self.scrub.totals.rounds == rounds:
            assert self.env.clock.monotonic() < deadline, "it does not come"
            await self.env.clock.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return self.scrub.damaged


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.disk.heal()
    made.directories.close()


def change(held: Log, number: int, position: int, data: bytes) -> str:
    """Damage a segment; where it is."""
    path = Path(held.segments[number].path(".log"))
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)
    return str(path)


async def test_whole_logs_are_found_whole(bench: Bench) -> None:
    held = bench.add("t")
    bench.add("empty", batches=0)
    large = bench.add("large", LogConfig(segment_bytes=1 << 30), batches=4000)
    for log in (held, large):
        log.flush()
    assert large.size > 2 * SLICE_BYTES
    assert await bench.scrubbed() == {}
    assert bench.scrub.totals.bytes == held.size + large.size
    text = render(bench.scrub.families())
    assert "headrace_scrub_damaged_segments 0" in text
    assert f"headrace_scrub_bytes_total {held.size + large.size}" in text


@pytest.mark.parametrize(
    ("position", "data", "words"),
    [
        (70, b"X", "checksum of a record batch does not match"),
        (8, b"\xff\xff", "there is no complete record batch"),
        (8, b"\0\0\0\1", "there is no complete record batch"),
        (7, b"\x63", "there is a batch of offsets"),
    ],
)
@pytest.mark.parametrize("number", [0, 2, -1])
async def test_damage_is_found(
    bench: Bench, caplog: pytest.LogCaptureFixture, position: int, data: bytes, words: str, number: int
) -> None:
    held = bench.add("t")
    bench.add("whole").flush()
    held.flush()
    path = change(held, number, position, data)
    found = await bench.scrubbed()
    assert list(found) == [(TopicPartition("t", 0), held.segments[number].base_offset)]
    assert words in next(iter(found.values()))
    assert f"The scrub found damage in {path}" in caplog.text
    assert "headrace_scrub_damaged_segments 1" in render(bench.scrub.families())
    held.remove_first_segments(len(held.segments) if number == -1 else number + 1)
    assert await bench.scrubbed() == {}


async def test_what_is_not_vouched_for_is_not_judged(bench: Bench) -> None:
    """The tail is recovery's business; up to the recovery point it is the scrub's."""
    held = bench.add("t", LogConfig(segment_bytes=1 << 30), batches=20)
    held.flush()
    synced = held.size
    bench.add("t", LogConfig(segment_bytes=1 << 30), batches=20)
    assert held.recovery_point == 40
    change(held, 0, held.size - 1, b"X")
    assert await bench.scrubbed() == {}
    assert bench.scrub.totals.bytes == synced
    change(held, 0, synced - 1, b"X")
    assert len(await bench.scrubbed()) == 1


async def test_a_segment_that_does_not_fit_is_found(bench: Bench, tmp_path: Path) -> None:
    """One with all its files between the others, and one that is missing: a start does not see them."""
    held = bench.add("t")
    bench.add("gap")
    bench.directories.close()
    root = tmp_path / "broker-1"
    for suffix in ("log", "index", "timeindex"):
        data = (root / "t-0" / f"{0:020d}.{suffix}").read_bytes()
        (root / "t-0" / f"{5:020d}.{suffix}").write_bytes(data[:400] if suffix == "log" else b"")
        (root / "gap-0" / f"{held.segments[1].base_offset:020d}.{suffix}").unlink()
    again = Bench(tmp_path)
    found = await again.scrubbed()
    assert {name.topic for name, _ in found} == {"t", "gap"}
    assert any("the next segment begins at 5" in words for words in found.values())
    assert any("records are missing" in words for words in found.values())
    again.directories.close()


async def test_compacted_logs_may_have_gaps(bench: Bench) -> None:
    held = bench.add("t")
    held.first_dirty_offset = 0
    held.flush()
    Path(held.segments[0].path(".log")).write_bytes(b"")
    held.segments[0].size = 0
    assert await bench.scrubbed() == {}


async def test_a_disk_that_cannot_be_read_is_judged(bench: Bench) -> None:
    held = bench.add("t")
    held.flush()
    bench.disk.fail(held.directory, errno.EIO, "pread")
    await bench.scrubbed()
    assert held.failure is not None


async def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, headrace_scrub_bytes_per_second="0")
    await asyncio.wait_for(bench.scrub.run(), PATIENCE_S)
    assert BrokerConfig.build(flags={}).integer("headrace.scrub.bytes.per.second") == 0
    bench.directories.close()


async def test_it_keeps_to_its_rate(tmp_path: Path) -> None:
    """By the pauses it asks for: as long as its reading may take."""
    bench = Bench(tmp_path, headrace_scrub_bytes_per_second="1000")
    held = bench.add("t")
    held.flush()
    slept: list[float] = []

    class NotingClock:
        monotonic = staticmethod(bench.env.clock.monotonic)

        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)
            await bench.env.clock.sleep(0)

    bench.scrub._env = replace(bench.env, clock=NotingClock())  # type: ignore[arg-type]
    await bench.scrub._round()
    assert sum(slept) == pytest.approx(held.size / 1000)
    bench.directories.close()

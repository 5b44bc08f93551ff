"""Offsets by time: exact to the record, with every codec, over segments and after a restart."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.records.builder import NewRecord, build_batch
from headrace.records.compression import Codec

BASE = 1_699_999_000_000


def fill(store: Any, seed: int, codec: Codec = Codec.NONE) -> list[int]:
    """Records with timestamps that wander; the timestamps by offset."""
    rng = random.Random(seed)
    store.create(segment_bytes=1500, index_interval_bytes=300)
    times: list[int] = []
    for _ in range(60):
        batch = [BASE + len(times) * 10 + rng.randrange(-80, 80) for _ in range(rng.randrange(1, 5))]
        store.log.append_as_leader(build_batch([NewRecord(b"v", timestamp=at) for at in batch], codec=codec), 2)
        times += batch
    assert len(store.log.segments) > 2
    return times


def expected(times: list[int], timestamp: int, start: int = 0) -> tuple[int, int, int] | None:
    return next(((at, offset, 2) for offset, at in enumerate(times) if at >= timestamp and offset >= start), None)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_first_record_as_late_as_the_time(store: Any, codec: Codec) -> None:
    times = fill(store, codec, codec)
    for timestamp in range(min(times) - 20, max(times) + 20, 7):
        assert store.log.find_offset_by_timestamp(timestamp) == expected(times, timestamp)
    best = max(times)
    assert store.log.max_timestamp_offset() == (best, times.index(best), 2)


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_restart(store: Any, clean: bool) -> None:
    times = fill(store, 9)
    if clean:
        store.log.close()
    store.reopen(clean=clean)
    for timestamp in range(min(times) - 20, max(times) + 20, 11):
        assert store.log.find_offset_by_timestamp(timestamp) == expected(times, timestamp)
    store.log.truncate_to(60)
    kept = times[: store.log.end_offset]
    for timestamp in range(min(times) - 20, max(times) + 20, 11):
        assert store.log.find_offset_by_timestamp(timestamp) == expected(kept, timestamp)


def test_nothing_before_the_start_offset(store: Any) -> None:
    times = fill(store, 4)
    store.log.delete_records_to(50)
    for timestamp in range(min(times), max(times) + 20, 11):
        assert store.log.find_offset_by_timestamp(timestamp) == expected(times, timestamp, 50)


def test_an_empty_log_and_one_without_timestamps(store: Any) -> None:
    assert store.log.find_offset_by_timestamp(0) is None
    assert store.log.max_timestamp_offset() is None
    store.append(2, at=-1)
    assert store.log.find_offset_by_timestamp(0) is None
    assert store.log.max_timestamp_offset() is None

"""The caches that all logs share stay within their bounds, and files close when nobody uses them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headrace.env.real import RealDisk
from headrace.storage.files import FileCache, write_at, write_atomically
from headrace.storage.resources import IndexCache
from headrace.storage.segment import Segment
from headrace.storage.segment_index import SegmentIndex


def test_the_file_cache_closes_the_oldest_once_unused(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    cache = FileCache(RealDisk(), limit=2)
    held = cache.get(str(tmp_path / "a"))
    second = cache.get(str(tmp_path / "b")).fd
    assert cache.get(str(tmp_path / "a")) is held
    cache.get(str(tmp_path / "c"))  # b goes, and closes
    with pytest.raises(OSError):
        os.fstat(second)
    cache.get(str(tmp_path / "b"))  # a goes, but is still in use
    assert os.pread(held.fd, 1, 0) == b"a"


def test_the_index_cache_is_bounded_in_bytes() -> None:
    one = SegmentIndex()
    for number in range(100):
        one.add(number, number)
    cache = IndexCache(limit_bytes=3 * one.memory_bytes)
    segments = [Segment("d", number) for number in range(5)]
    for segment in segments:
        cache.put(segment, one)
    assert cache.used_bytes == 3 * one.memory_bytes
    assert [cache.get(segment) is not None for segment in segments] == [False, False, True, True, True]
    cache.drop(segments[4])
    assert cache.used_bytes == 2 * one.memory_bytes


def test_old_segments_hold_nothing_open(store: Any) -> None:
    store.create(segment_bytes=500, index_interval_bytes=100)
    for _ in range(50):
        store.append()
    assert len(store.log.segments) > 5
    assert [segment.file is not None for segment in store.log.segments[:-1]] == [False] * (
        len(store.log.segments) - 1
    )
    assert all(segment.index is None for segment in store.log.segments[:-1])


def test_atomic_writes_leave_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomically(RealDisk(), str(path), b"old")

    class FullDisk(RealDisk):
        @staticmethod
        def pwrite(fd: int, data: Any, position: int) -> int:
            raise OSError("full")

    with pytest.raises(OSError):
        write_atomically(FullDisk(), str(path), b"new")
    assert path.read_bytes() == b"old"


def test_write_at_goes_on_or_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_at(RealDisk(), str(path), 0, b"abcdef")
    write_at(RealDisk(), str(path), 6, b"gh")
    assert path.read_bytes() == b"abcdefgh"
    write_at(RealDisk(), str(path), 0, b"x")
    assert path.read_bytes() == b"x"

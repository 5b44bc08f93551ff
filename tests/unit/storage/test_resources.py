"""The caches that all logs share stay within their bounds, and files close when nobody uses them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headrace.env.real import RealDisk, real_env
from headrace.storage.files import write_at, write_atomically
from headrace.storage.resources import FileCache, Graveyard, IndexCache, StorageResources
from headrace.storage.segment import LOG, Segment
from headrace.storage.segment_index import SegmentIndex
from headrace.storage.strays import Strays


def test_the_file_cache_closes_the_oldest_once_unused(tmp_path: Path) -> None:
    env = real_env()
    resources = StorageResources(env, IndexCache(), FileCache(limit=2), Graveyard(env), Strays(env))
    a, b, c = (Segment(str(tmp_path), number) for number in range(3))
    for segment in (a, b, c):
        Path(segment.path(LOG)).write_bytes(bytes([segment.base_offset]))
    held = a.open_file(resources)
    second = b.open_file(resources).fd
    assert a.open_file(resources) is held
    c.open_file(resources)  # b goes, and closes
    with pytest.raises(OSError):
        os.fstat(second)
    b.open_file(resources)  # a goes, but is still in use
    assert resources.file_cache.get(a) is None
    assert os.pread(held.fd, 1, 0) == b"\0"


def test_the_index_cache_is_bounded_in_bytes() -> None:
    one = SegmentIndex()
    for number in range(100):
        one.add(number, number)
    cache: IndexCache[SegmentIndex] = IndexCache(limit_bytes=3 * one.memory_bytes)
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

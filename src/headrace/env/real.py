"""The real world: kernel files, the event loop's clock, the system's randomness, a small thread pool."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from headrace.env.env import EntryKind, Env, Timer

T = TypeVar("T")

BLOCKING_THREADS = 4
SYNCFS_TELLS_ERRORS_SINCE = (5, 8)
"""The Linux in which syncfs began to report what could not be written."""


class RealClock:
    # Bound once as class attributes: a call costs no more than the function itself.
    monotonic = staticmethod(time.monotonic)
    boottime = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay, callback)

    def call_soon(self, callback: Callable[[], object]) -> object:
        return asyncio.get_running_loop().call_soon(callback)

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(delay)


class RealDisk:
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    truncate = staticmethod(os.ftruncate)
    fsync = staticmethod(os.fsync)
    fdatasync = staticmethod(os.fdatasync)
    exists = staticmethod(os.path.exists)
    list_directory = staticmethod(os.listdir)
    file_size = staticmethod(os.path.getsize)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    remove_tree = staticmethod(shutil.rmtree)

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_entries(self, path: str) -> dict[str, EntryKind]:
        with os.scandir(path) as entries:
            return {entry.name: EntryKind.FILE if entry.is_file() else _other_kind(entry) for entry in entries}

    def fsync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_volume(self, fd: int) -> bool:
        import ctypes  # Only a stop needs it, and a start should not pay for it.

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
            return False
        if syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), "the volume could not be synced")
        return _kernel() >= SYNCFS_TELLS_ERRORS_SINCE

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def free_bytes(self, path: str) -> int:
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize

    def total_bytes(self, path: str) -> int:
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize

    def lock(self, path: str) -> int | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def boot_id(self) -> str:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()


def _other_kind(entry: os.DirEntry[str]) -> EntryKind:
    return EntryKind.DIRECTORY if entry.is_dir() else EntryKind.OTHER


def _kernel() -> tuple[int, int]:
    """(0, 0) if the release is not a Linux kernel's."""
    match = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    return (int(match[1]), int(match[2])) if match is not None else (0, 0)


class RealRng:
    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)

    def random(self) -> float:
        return self._random.random()


def real_env() -> Env:
    pool = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="headrace-blocking")

    def start_blocking(work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(pool, work)

    return Env(clock=RealClock(), disk=RealDisk(), rng=RealRng(), start_blocking=start_blocking)

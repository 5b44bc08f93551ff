"""What the core may ask of the world. The real versions are in `real.py`, simulated ones in `testing`.

Nothing outside this package calls `time`, `random`, `os` or `asyncio.sleep`: a test holds that, because
only then can the same broker run under a virtual clock with seeded faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar

from headrace.env.background import Background

T = TypeVar("T")

READ_ONLY = os.O_RDONLY
READ_WRITE = os.O_RDWR
CREATE = os.O_CREAT
EXCLUSIVE = os.O_EXCL
TRUNCATE = os.O_TRUNC


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Monotonic time for waits, boot time for leases, wall time only for what is shown or stored."""

    def monotonic(self) -> float:
        """Seconds; never goes back."""
        ...

    def boottime(self) -> float:
        """Seconds since the machine started, also those it slept; the same for all its processes. For leases."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer: ...

    def call_soon(self, callback: Callable[[], object]) -> object:
        """After what runs now, in this turn of the loop or the next."""
        ...

    async def sleep(self, delay: float) -> None: ...


class EntryKind(Enum):
    """What a name in a directory stands for; a link, for what it leads to."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"
    """A link that leads nowhere, a socket, a pipe."""


class Disk(Protocol):
    """POSIX files by integer handle. Every call blocks: see `Env.run_blocking` for the slow ones.

    Failures are `OSError`. A missing file is `FileNotFoundError`.
    """

    def open(self, path: str, flags: int) -> int: ...
    def close(self, fd: int) -> None: ...
    def pread(self, fd: int, size: int, position: int) -> bytes: ...
    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int: ...
    def size(self, fd: int) -> int: ...
    def truncate(self, fd: int, size: int) -> None: ...
    def fsync(self, fd: int) -> None: ...
    def fdatasync(self, fd: int) -> None: ...
    def fsync_directory(self, path: str) -> None: ...
    def sync_volume(self, fd: int) -> bool:
        """Sync everything on the volume of an open file; an error since it was opened is raised.

        False where the system cannot vouch for that: then every file must be synced by itself.
        """
        ...

    def exists(self, path: str) -> bool: ...
    def list_directory(self, path: str) -> list[str]: ...
    def list_entries(self, path: str) -> dict[str, EntryKind]: ...
    def file_size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def make_directory(self, path: str) -> None:
        """Create the directory and its parents; no error if it is there."""
        ...

    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def free_bytes(self, path: str) -> int: ...
    def total_bytes(self, path: str) -> int: ...
    def lock(self, path: str) -> int | None:
        """Take an exclusive lock that dies with the process; None if another holds it."""
        ...

    def boot_id(self) -> str:
        """Differs after every boot of the kernel: what was only in the page cache is gone then."""
        ...


class Rng(Protocol):
    def bytes(self, count: int) -> bytes: ...
    def randrange(self, stop: int) -> int: ...
    def random(self) -> float: ...


class BlockingRunner(Protocol):
    """Starts blocking work off the loop's thread."""

    def __call__(self, work: Callable[[], T]) -> asyncio.Future[T]: ...


@dataclass(frozen=True, slots=True)
class Env:
    clock: Clock
    disk: Disk
    rng: Rng
    start_blocking: BlockingRunner
    """Without a task, for the hot path. Work whose future is cancelled keeps running: see `run_blocking`."""
    background: Background = field(default_factory=Background)
    """The one way to start work of the broker's own."""

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Run `work()` in a thread: fsync, deletion, scans of whole files.

        A thread cannot be stopped. So a task that is cancelled here ends only once the thread has: what comes
        after it, such as closing the logs, finds nobody who still changes them.
        """
        running = self.start_blocking(work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # no one is left to notify
            raise

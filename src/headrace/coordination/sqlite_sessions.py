"""The files of the SQLite store's sessions: a lock that shows who is dead, and a lease that shows who is alive.

`<store>.sessions/<token>` belongs to one session. Its owner
- holds a lock on it, which the kernel lets go when the process dies, however it dies;
- keeps the moment in it at which its lease ends, in seconds of `Clock.boottime`, as text of a fixed width.
  Renewing is one small write that is not synced and waits for no transaction: a device that is slow to sync costs
  nobody the lease.
A stopped process keeps its lock and stops writing, so both are needed.

Why a renewal cannot cross with the removal of the session:
- Whoever wants to remove it reads the clock first and the file second. If the clock is past what the file says, no
  renewal was written before the lease ended.
- The owner reads the clock again after writing. If the lease had not ended by then, whoever looks later sees the
  new end. Otherwise the renewal came too late to be trusted: the owner takes the store's write lock, looks whether
  its session is still there, and writes once more; nobody removes a session without that lock (`SqliteTree`).
- A reader that meets half of a write sees the first digits new and the rest old: never less than the old end.
"""

from __future__ import annotations

import threading

from headrace.env import Disk
from headrace.env.env import READ_ONLY, Clock

_WIDTH = 20


class SessionFile:
    """This process's own. `begin`, `end` belong to the store's thread, `renew` to the loop's."""

    def __init__(self, disk: Disk, clock: Clock, path: str, timeout: float) -> None:
        self._disk = disk
        self._clock = clock
        self._path = path
        self._timeout = timeout
        self._fd: int | None = None
        self._ends_at = 0.0
        self._in_use = threading.Lock()
        """Around every use of the descriptor: a number that was closed may be another file's by then."""

    @property
    def begun(self) -> bool:
        return self._fd is not None

    def begin(self) -> None:
        fd = self._disk.lock(self._path)
        assert fd is not None, "a random session token came twice"
        with self._in_use:
            self._fd = fd
            self._ends_at = self._clock.boottime() + self._timeout
            self._write(self._ends_at)

    def renew(self, sent: float) -> bool:
        """Extend the lease, counted from `sent`. False if it had ended before this was written: `revive` then."""
        with self._in_use:
            if self._fd is None:
                return True  # No ephemeral node yet, so nothing that others could remove.
            ends_at = sent + self._timeout
            self._write(ends_at)
            if self._clock.boottime() > self._ends_at:
                return False
            self._ends_at = ends_at
            return True

    def revive(self, sent: float) -> None:
        """Extend a lease that may have ended; only under the store's write lock, with the session still there."""
        with self._in_use:
            if self._fd is not None:
                self._ends_at = sent + self._timeout
                self._write(self._ends_at)

    def end(self) -> None:
        """Let the lock go and remove the file."""
        with self._in_use:
            if self._fd is None:
                return
            remove(self._disk, self._path)
            self._disk.close(self._fd)
            self._fd = None

    def _write(self, ends_at: float) -> None:
        assert self._fd is not None
        self._disk.pwrite(self._fd, f"{ends_at:0{_WIDTH}.6f}".encode(), 0)


def overdue(disk: Disk, clock: Clock, path: str) -> bool:
    """Whether the lease in another session's file has ended; no if the file says nothing."""
    now = clock.boottime()
    try:
        fd = disk.open(path, READ_ONLY)
    except FileNotFoundError:
        return False
    try:
        text = disk.pread(fd, _WIDTH, 0)
    finally:
        disk.close(fd)
    return len(text) == _WIDTH and now > float(text)


def remove(disk: Disk, path: str) -> None:
    if disk.exists(path):
        disk.unlink(path)

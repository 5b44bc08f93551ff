"""A disk on which the process dies at a chosen call: that write is torn in half, and nothing follows it.

What was done before the crash stays, as it does in the page cache when a process is killed. Count the calls of a
run first (`crash_at=None`), then run it again once for every one of them.
"""

from __future__ import annotations

import os
from typing import Any

from headrace.env.real import RealDisk

CHANGES = ("pwrite", "truncate", "rename", "unlink", "remove_tree", "make_directory", "fsync", "fdatasync")


class Crash(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and go on."""


class CrashingDisk(RealDisk):
    def __init__(self, crash_at: int | None = None) -> None:
        self.calls = 0
        self._crash_at = crash_at
        self._locks: list[int] = []
        for name in CHANGES:
            setattr(self, name, self._counted(name, getattr(self, name)))

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._count()
        return super().open(path, flags)

    def _count(self) -> bool:
        """Whether this is the last call; raises where the crash lies behind."""
        self.calls += 1
        if self._crash_at is not None and self.calls > self._crash_at:
            raise self._crash()
        return self.calls == self._crash_at

    def lock(self, path: str) -> int | None:
        fd = super().lock(path)
        if fd is not None:
            self._locks.append(fd)
        return fd

    def _crash(self) -> Crash:
        """The kernel lets go of what the process had locked."""
        for fd in self._locks:
            os.close(fd)
        self._locks = []
        return Crash()

    def _counted(self, name: str, call: Any) -> Any:
        def counted(target: Any, *arguments: Any) -> Any:
            is_last = self._count()
            if is_last and name == "pwrite":
                data, position = arguments
                call(target, bytes(data)[: len(data) // 2], position)
            elif not is_last:
                return call(target, *arguments)
            raise self._crash()

        return counted

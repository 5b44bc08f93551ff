"""A real disk that fails where it is told to: by path, by call, with an errno of the test's choice."""

from __future__ import annotations

import os
from typing import Any

from headrace.env.real import RealDisk

BY_DESCRIPTOR = ("pread", "pwrite", "truncate", "fsync", "fdatasync")
BY_PATH = (
    "open",
    "fsync_directory",
    "list_directory",
    "list_entries",
    "make_directory",
    "rename",
    "lock",
    "total_bytes",
)


class FaultyDisk(RealDisk):
    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._faults: list[tuple[str, frozenset[str], int]] = []
        self.failed_calls: list[str] = []
        for name in BY_DESCRIPTOR:
            setattr(self, name, self._watched(name, getattr(self, name), by_path=False))
        for name in BY_PATH:
            setattr(self, name, self._watched(name, getattr(self, name), by_path=True))

    def fail(self, prefix: str, number: int, *calls: str) -> None:
        """From now on these calls (all, if none is named) fail with this errno on everything below `prefix`."""
        self._faults.append((prefix, frozenset(calls or (*BY_DESCRIPTOR, *BY_PATH)), number))

    def heal(self) -> None:
        self._faults = []

    def _watched(self, name: str, call: Any, by_path: bool) -> Any:
        def watched(target: Any, *arguments: Any) -> Any:
            path = target if by_path else self._paths.get(target, "")
            for prefix, calls, number in self._faults:
                if name in calls and path.startswith(prefix):
                    self.failed_calls.append(f"{name} {path}")
                    raise OSError(number, os.strerror(number), path)
            result = call(target, *arguments)
            if name == "open":
                self._paths[result] = target
            return result

        return watched

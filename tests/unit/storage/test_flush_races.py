"""A flush runs in a thread while the loop cuts the log: whatever the moment, the recovery point is not too high.

The moments are the bytecodes of the flush itself: before each of them, in its turn, the log is cut. Where the lock
is held, a cut would wait for it and so comes at a later moment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import pytest

from headrace.env.real import RealDisk
from headrace.storage.log import Log
from headrace.storage.syncing import NOTING, Durability

WATCHED: set[CodeType] = {Log.flush.__code__, Durability.synced.__code__}


class AtBytecode:
    """Calls `act` before the bytecode number `moment` of the watched functions; counts them all."""

    def __init__(self, moment: int, act: Callable[[], None]) -> None:
        self.count = 0
        self._moment = moment
        self._act = act

    def __enter__(self) -> AtBytecode:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code not in WATCHED:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            if self.count >= self._moment and not NOTING.locked():
                act, self._act = self._act, lambda: None
                act()
            self.count += 1
        return self._trace


class CountingDisk(RealDisk):
    syncs = 0

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]  # RealDisk has the function of `os` itself
        self.syncs += 1

    def fsync_directory(self, path: str) -> None:
        pass


def cut_and_refill(store: Any) -> None:
    store.log.truncate_to(2)
    for _ in range(2):
        store.append()


def start_again(store: Any) -> None:
    store.log.truncate_fully_and_start_at(3)


@pytest.mark.parametrize("cut", [cut_and_refill, start_again])
def test_a_cut_at_any_moment_of_a_flush_keeps_the_recovery_point_down(store: Any, cut: Any) -> None:
    disk = CountingDisk()
    store.env = replace(store.env, disk=disk)
    store.resources = replace(store.resources, env=store.env)
    with AtBytecode(sys.maxsize, lambda: None):
        store.create().flush()  # from Python 3.12 on, the first call only prepares the code to be counted
    moment, moments = 0, 1
    while moment < moments:
        log = store.create()
        log.truncate_fully_and_start_at(0)
        for _ in range(5):
            store.append()
        after_cut: list[tuple[int, int]] = []

        def act(log: Log = log, after_cut: list[tuple[int, int]] = after_cut) -> None:
            cut(store)
            after_cut.append((log.recovery_point, disk.syncs))

        with AtBytecode(moment, act) as watched:
            log.flush()
        [(recovery_point, syncs)] = after_cut or [(5, -1)]
        # What was written after the cut is on the device only if the sync came after it too.
        highest = log.end_offset if disk.syncs > syncs else recovery_point
        assert log.recovery_point <= highest, f"cut before bytecode {moment} of the flush"
        moments, moment = watched.count, moment + 1
    assert moments > 40

"""The guard must see what it is there for: a copy of a batch, a task per request, one more system call."""

from __future__ import annotations

import asyncio

import pytest

from bench.guard import (
    Figures,
    compare,
    count_bytecodes,
    count_calls,
    improved,
    measure_peak_bytes,
    open_paths,
)
from headrace.server.dispatch import Dispatcher
from headrace.server.exchange import Exchange


def test_growth_within_the_tolerance_passes() -> None:
    assert compare({"produce": {"bytecodes": 1000.0}}, {"produce": {"bytecodes": 1099.0}}) == []


def test_growth_beyond_the_tolerance_is_named() -> None:
    kept: Figures = {"produce": {"bytecodes": 1000.0, "system_calls": 4.0}}
    found: Figures = {"produce": {"bytecodes": 1101.0, "system_calls": 5.0}}
    assert compare(kept, found) == [
        "produce: bytecodes per request went from 1000 to 1101",
        "produce: system calls per request went from 4 to 5",
    ]


def test_a_path_that_got_cheaper_is_noticed() -> None:
    assert improved({"fetch": {"bytecodes": 1000.0}}, {"fetch": {"bytecodes": 800.0}})
    assert not improved({"fetch": {"bytecodes": 1000.0}}, {"fetch": {"bytecodes": 990.0}})


def test_only_calls_between_the_marks_count() -> None:
    trace = """\
openat(AT_FDCWD, "x", O_RDONLY) = 3
sched_get_priority_max(SCHED_OTHER) = 0
sendto(5, "", 1, 0, NULL, 0) = 1
sched_get_priority_max(SCHED_FIFO) = 99
getpid() = 7
epoll_wait(3, [], 5, 0) = 0
pwrite64(9, "", 1, 0) = 1
sched_get_priority_max(SCHED_RR) = 99
recvfrom(5, "", 1, 0, NULL, NULL) = 1
sched_get_priority_max(SCHED_OTHER) = 0
"""
    assert count_calls(trace) == [2]


def test_counts_are_the_same_every_time() -> None:
    with open_paths() as paths:
        assert count_bytecodes(paths, "fetch") == count_bytecodes(paths, "fetch")


def test_a_copy_of_the_frame_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_paths() as paths:
        kept: Figures = {"produce_1mb": {"peak_bytes": measure_peak_bytes(paths, "produce_1mb")}}
        dispatch = Dispatcher.dispatch
        monkeypatch.setattr(
            Dispatcher, "dispatch", lambda self, to, frame: dispatch(self, to, memoryview(bytearray(frame)))
        )
        found: Figures = {"produce_1mb": {"peak_bytes": measure_peak_bytes(paths, "produce_1mb")}}
    assert compare(kept, found)


def test_a_task_per_request_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_paths() as paths:
        kept: Figures = {"produce": {"bytecodes": count_bytecodes(paths, "produce")}}
        dispatch = Dispatcher.dispatch

        async def nothing() -> None: ...

        def dispatch_and_start_a_task(self: Dispatcher, connection: Exchange, frame: memoryview) -> object:
            # Held by the loop until it has run, within the turns that are counted.
            asyncio.get_running_loop().create_task(nothing())
            return dispatch(self, connection, frame)

        monkeypatch.setattr(Dispatcher, "dispatch", dispatch_and_start_a_task)
        found: Figures = {"produce": {"bytecodes": count_bytecodes(paths, "produce")}}
    assert compare(kept, found)

"""Syncs in rounds (R-LOG-6): who goes together, who waits, who hears what; with threads that the test turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from headrace.env import Env
from headrace.env.real import RealClock, RealDisk, RealRng
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.sync_rounds import LANES, LOGS_PER_ROUND, SyncOutcome, SyncRounds
from headrace.storage.log import Log


class Threads:
    """Jobs that run when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    def start_blocking(self, work: Callable[[], Any]) -> Awaitable[Any]:
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.jobs.append((work, ended))
        return ended

    async def finish_first(self) -> None:
        work, ended = self.jobs.pop(0)
        try:
            ended.set_result(work())
        except ZeroDivisionError as fault:
            ended.set_exception(fault)
        await turns()


class FakeLog:
    def __init__(self, name: str, calls: list[str], error: Exception | None = None) -> None:
        self.directory = name
        self._calls = calls
        self._error = error

    def flush(self, up_to: int | None = None, save_index: bool = True) -> None:
        assert not save_index
        self._calls.append(self.directory)
        if self._error is not None:
            raise self._error


class Asking:
    def __init__(self, log: FakeLog) -> None:
        self.log = cast(Log, log)
        self.heard: list[SyncOutcome] = []

    def synced(self, error: SyncOutcome) -> None:
        self.heard.append(error)


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


class Bench:
    def __init__(self) -> None:
        self.threads = Threads()
        self.calls: list[str] = []
        self.env = Env(RealClock(), RealDisk(), RealRng(), cast(Any, self.threads.start_blocking))
        self.rounds = SyncRounds(self.env)

    def ask(self, name: str, error: Exception | None = None) -> Asking:
        asking = Asking(FakeLog(name, self.calls, error))
        self.rounds.ask(asking)
        return asking


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_all_that_is_due_in_a_turn_goes_together(bench: Bench) -> None:
    asking = [bench.ask(f"d/{number}") for number in range(5)]
    assert not bench.threads.jobs, "others of this turn may still come"
    await turns()
    assert len(bench.threads.jobs) == 1
    await bench.threads.finish_first()
    assert bench.calls == [f"d/{number}" for number in range(5)]
    assert [one.heard for one in asking] == [[None]] * 5


async def test_what_comes_while_all_lanes_run_waits_and_then_goes_together(bench: Bench) -> None:
    for lane in range(LANES):
        bench.ask(f"d/first-{lane}")
        await turns()
    late = [bench.ask(f"d/late-{number}") for number in range(3)]
    await turns()
    assert len(bench.threads.jobs) == LANES
    await bench.threads.finish_first()
    assert len(bench.threads.jobs) == LANES
    assert [one.heard for one in late] == [[]] * 3
    while bench.threads.jobs:
        await bench.threads.finish_first()
    assert [one.heard for one in late] == [[None]] * 3


async def test_a_round_is_bounded(bench: Bench) -> None:
    asking = [bench.ask(f"d/{number}") for number in range(LOGS_PER_ROUND * LANES + 1)]
    await turns()
    assert len(bench.threads.jobs) == LANES
    await bench.threads.finish_first()
    assert [bool(one.heard) for one in asking] == [True] * LOGS_PER_ROUND + [False] * (
        LOGS_PER_ROUND * (LANES - 1) + 1
    )
    while bench.threads.jobs:
        await bench.threads.finish_first()
    assert all(one.heard == [None] for one in asking)


async def test_each_hears_of_its_own_failure_only(bench: Bench) -> None:
    """R-LOG-8: what failed is refused, what was synced beside it is not."""
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "broken")
    good, bad, last = bench.ask("d/1"), bench.ask("d/2", error), bench.ask("d/3")
    await turns()
    await bench.threads.finish_first()
    assert (good.heard, bad.heard, last.heard) == ([None], [error], [None])


async def test_directories_do_not_wait_for_each_other(bench: Bench) -> None:
    for lane in range(LANES):
        bench.ask(f"hung/{lane}")
        await turns()
    healthy = bench.ask("other/1")
    await turns()
    assert len(bench.threads.jobs) == LANES + 1
    bench.threads.jobs = bench.threads.jobs[-1:]
    await bench.threads.finish_first()
    assert healthy.heard == [None]


async def test_a_fault_of_ours_does_not_hold_up_the_others(bench: Bench) -> None:
    reasons: list[str] = []
    bench.env.background.on_failure = reasons.append
    before, broken, after = bench.ask("d/1"), bench.ask("d/2", ZeroDivisionError()), bench.ask("d/3")
    await turns()
    await bench.threads.finish_first()
    assert reasons == ["Syncing d/2 failed: ZeroDivisionError: "]
    await bench.threads.finish_first()
    assert (before.heard, broken.heard, after.heard) == ([None], [], [None])

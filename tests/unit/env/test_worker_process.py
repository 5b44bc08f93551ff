"""The end of a worker process and the end of whoever waits for it, in every order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.env.worker_process import WorkerProcess


class FakeProcess:
    """Ends when the test says so."""

    def __init__(self) -> None:
        self.stdin = SimpleNamespace(close=lambda: None)
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return await self.ended


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_is_not_lost_in_the_turn_in_which_the_process_ends(turns: int) -> None:
    """Whoever cancelled waited forever: a broker that stopped as its cleaner closed a worker did not end."""
    process: Any = FakeProcess()
    went_on = False

    async def work() -> None:
        nonlocal went_on
        await WorkerProcess(process).close()
        await asyncio.sleep(0)
        went_on = True

    task = asyncio.create_task(work())
    for _ in range(5):
        await asyncio.sleep(0)
    process.ended.set_result(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    was_running = task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() == was_running
    assert went_on != was_running

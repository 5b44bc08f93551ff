"""Blocking work and cancellation: nothing that a task began in a thread outlives the task."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headrace.env.real import real_env


async def test_a_cancelled_task_ends_after_its_thread() -> None:
    """A broker that stops closes its logs next: a thread that still makes one would change them meanwhile."""
    env, began, may_end = real_env(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait()

    task = env.background.start("Making logs", env.run_blocking(work))
    await asyncio.to_thread(began.wait)
    stopping = asyncio.create_task(env.background.close())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    assert not stopping.done()
    task.cancel()  # a second time: it still waits
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    await stopping
    assert task.cancelled()


async def test_the_result_and_the_error_of_a_thread() -> None:
    env = real_env()
    assert await env.run_blocking(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await env.run_blocking(lambda: 1 // 0)


async def test_work_that_fails_after_its_task_was_cancelled() -> None:
    env, began, may_end = real_env(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait()
        raise OSError("nobody waits for this any more")

    task = asyncio.ensure_future(env.run_blocking(work))
    await asyncio.to_thread(began.wait)
    task.cancel()
    may_end.set()
    await asyncio.wait([task])
    assert task.cancelled()

"""Background work: the one way to start it, always with a name (D16).

A broker that half works takes weeks to find; one that stops says why and is back in a third of a second. So
whatever ends unexpectedly ends the broker: `on_failure` is told which work it was and what happened. What one
request, one waiter or one group does wrong is not background work: it ends with an error for that one alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


def _nobody(reason: str) -> None:
    """Until an owner says what a failure does; it is in the log."""


class Background:
    __slots__ = ("_tasks", "on_failure")

    def __init__(self) -> None:
        self.on_failure: Callable[[str], None] = _nobody
        """Called with the reason once some work has ended that must not end. Set by the owner of the process."""
        self._tasks: dict[asyncio.Task[Any], str] = {}

    def run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Work that lasts as long as the broker: that it ends at all is a failure."""
        self._add(name, work, endless=True)

    def start(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work that ends by itself. An exception is a failure of the broker: whoever waits for it gets it too."""
        return self._add(name, work, endless=False)

    async def close(self) -> None:
        """Cancel what still runs and wait until it has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def fail(self, name: str, error: BaseException) -> None:
        """A callback, which is not a task, met something that must not happen."""
        logger.error("%s failed", name, exc_info=error)
        self.on_failure(f"{name} failed: {type(error).__name__}: {error}")

    def _add(self, name: str, work: Coroutine[Any, Any, T], endless: bool) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = name
        task.add_done_callback(partial(self._ended, endless))
        return task

    def _ended(self, endless: bool, task: asyncio.Task[Any]) -> None:
        name = self._tasks.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.fail(name, error)
        elif endless:
            logger.error("%s ended", name)
            self.on_failure(f"{name} ended")

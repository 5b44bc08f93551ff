"""Long polls wait on partitions without a task: they are called once per turn of the loop when data came."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from headrace.env import Clock

logger = logging.getLogger(__name__)


class Waiter(Protocol):
    def wake(self) -> None:
        """Called when something changed on a partition that this waits on: check again."""
        ...

    def failed(self, error: Exception) -> None:
        """Called when `wake` raised, which is a bug: end only this waiter."""
        ...


class FollowerWaiter(Waiter, Protocol):
    """A waiter for the end of the log to move."""

    def noted(self) -> None:
        """Called when the high watermark moved: report it with the next answer."""
        ...


class WakeList:
    """Collects the waiters that must check again and calls each once, after the current request is done.

    Calling them at once would answer a poll with the first of several batches that arrived in one read, and would
    run one connection's sending inside another's receiving.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Waiter, None] = {}
        self._running = False

    def wake(self, waiters: Mapping[Any, None]) -> None:
        if not waiters:
            return
        if not self._due and not self._running:
            self._clock.call_soon(self._run)
        self._due.update(waiters)

    def _run(self) -> None:
        """Wake all, including waiters that are woken by other waiters: a session wakes its polls."""
        self._running = True
        while self._due:
            due, self._due = self._due, {}
            for waiter in due:
                _wake(waiter)
        self._running = False


def _wake(waiter: Waiter) -> None:
    """Wake one waiter. If it raises, only that one is ended."""
    try:
        waiter.wake()
    except Exception as error:
        logger.exception("Something that waited on a partition failed")
        waiter.failed(error)

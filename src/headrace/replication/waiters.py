"""Long polls wait on partitions without a task: they are called once per turn of the loop when data came."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from headrace.env import Clock

logger = logging.getLogger(__name__)


class Waiter(Protocol):
    def wake(self) -> None:
        """Something changed on a partition this waits on: look again."""
        ...

    def failed(self, error: Exception) -> None:
        """`wake` raised, which is a bug: end this one only."""
        ...


class FollowerWaiter(Waiter, Protocol):
    """What waits for the end of the log to move."""

    def noted(self) -> None:
        """The high watermark moved: tell it with the next answer."""
        ...


class WakeList:
    """Collects who must look again and calls each once, after the current request is done.

    Calling at once would answer a poll with the first of several batches that arrived in one read, and would
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
        """Those that are woken by somebody woken have their turn too: a session wakes its polls."""
        self._running = True
        while self._due:
            due, self._due = self._due, {}
            for waiter in due:
                _wake(waiter)
        self._running = False


def _wake(waiter: Waiter) -> None:
    """One that raises is ended; the others are woken all the same."""
    try:
        waiter.wake()
    except Exception as error:
        logger.exception("Something that waited on a partition failed")
        waiter.failed(error)

"""Long polls wait on partitions without a task: they are called once per turn of the loop when data came."""

from __future__ import annotations

from typing import Protocol

from headrace.env import Clock


class Waiter(Protocol):
    def wake(self) -> None:
        """Something changed on a partition this waits on: look again."""
        ...


class WakeList:
    """Collects who must look again and calls each once, after the current request is done.

    Calling at once would answer a poll with the first of several batches that arrived in one read, and would
    run one connection's sending inside another's receiving.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Waiter, None] = {}

    def wake(self, waiters: dict[Waiter, None]) -> None:
        if not self._due:
            self._clock.call_soon(self._run)
        self._due.update(waiters)

    def _run(self) -> None:
        due, self._due = self._due, {}
        for waiter in due:
            waiter.wake()

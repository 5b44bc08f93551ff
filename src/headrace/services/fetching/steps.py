"""Large fetches take turns: one step of one of them in a turn of the loop, however many there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.env import Clock

Step = Callable[[], bool]
"""Does some milliseconds of work; whether there is more to do."""


class StepQueue:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Step] = deque()

    def add(self, step: Step) -> None:
        if not self._waiting:
            self._clock.call_soon(self._run)
        self._waiting.append(step)

    def _run(self) -> None:
        step = self._waiting.popleft()
        # Back in line before it runs: if it fails, the others still have their turns.
        if self._waiting:
            self._clock.call_soon(self._run)
        if step():
            self.add(step)

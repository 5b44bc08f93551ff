"""Scheduling of large work: what used up its share of a turn continues later, one piece in each turn of the loop.

One loop serves everybody. What one connection sends, or one large request asks for, may take seconds, so it is
done in slices of some milliseconds. Between two slices of whoever stands in line here, the loop reads from and
answers all others. However many stand in line, one slice is done per turn, in the order they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from headrace.env import Clock

SLICE_SECONDS = 0.005
"""What one connection or one large request may take of the loop at once."""


class Turns:
    __slots__ = ("_clock", "_line", "now", "slices")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._line: deque[Callable[[], object]] = deque()
        self.now = clock.monotonic
        self.slices = 0
        """How often somebody had to stand in line."""

    def join(self, go_on: Callable[[], object]) -> None:
        """Call `go_on` when it is its turn: after others were served."""
        self.slices += 1
        self._line.append(go_on)
        if len(self._line) == 1:
            self._clock.call_soon(self._next)

    def _next(self) -> None:
        go_on = self._line.popleft()
        if self._line:
            self._clock.call_soon(self._next)
        go_on()

    async def give_way(self) -> None:
        """Let others be served first."""
        turn = asyncio.get_running_loop().create_future()
        self.join(lambda: None if turn.done() else turn.set_result(None))
        await turn


class RequestSlices:
    """The share of one large request: see `handlers.context.Slices`."""

    __slots__ = ("_end", "_turns")

    def __init__(self, turns: Turns, began: float) -> None:
        self._turns = turns
        self._end = began + SLICE_SECONDS

    def due(self) -> bool:
        return self._turns.now() > self._end

    async def give_way(self) -> None:
        await self._turns.give_way()
        self._end = self._turns.now() + SLICE_SECONDS

"""An event loop whose time is virtual, and which knows to which simulated process each callback belongs.

Nothing waits: when nothing is ready, the clock jumps to the next timer. There are no sockets and no threads.

A `Process` is what can be killed and paused. What it starts runs in its context, and so does everything that this
starts in turn, because asyncio hands contexts on. A callback of a dead process is dropped; one of a paused process
is kept until it is resumed.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

MAX_TURNS_AT_ONE_TIME = 20_000
"""The limit of turns without the clock moving: more mean a busy loop."""
MAX_TURNS = 1_000_000
"""The limit of turns, thirty times those of a run: more mean that somebody waits again and again for nothing."""
TURNS_PER_LOOK = 10


class Process:
    """One simulated process on a host: dead once, paused any number of times."""

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.alive = True
        self.paused = False
        self.context = contextvars.Context()
        self.context.run(_CURRENT.set, self)
        self.kept: list[_Handle] = []
        """The callbacks that became due while it was paused."""


_CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
NOBODY = contextvars.Context()
"""The context for everything that belongs to no process: the network, the store, the schedule of faults."""


def current_process() -> Process | None:
    return _CURRENT.get()


class SimulationStuck(Exception):
    """Nothing is left to do, or callbacks follow each other without time passing."""


class _Handle(asyncio.TimerHandle):
    """A callback and the process that it belongs to, if any: it runs only while that does."""

    __slots__ = ("process",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: contextvars.Context | None,
    ) -> None:
        # What the base class does but for debugging: a run makes a hundred thousand of these.
        if context is None:
            self.process = _CURRENT.get()
            context = contextvars.copy_context()
        else:
            self.process = context.get(_CURRENT)
        self._when = when
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()


Connect = Callable[[str, int, asyncio.BaseProtocol], Awaitable[asyncio.Transport]]


class VirtualLoop(BaseEventLoop):
    _ready: deque[_Handle]
    _scheduled: list[tuple[float, int, _Handle]]
    """A heap, by time; callbacks of the same time are in the order in which they were set."""
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._timers = 0
        self._turns_at_one_time = 0
        self.turns = 0
        self.look: Callable[[], None] = _nothing
        """Called between two turns of the loop, now and then."""
        self.connect: Connect | None = None
        """Dials a simulated host."""

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        """Turn until somebody stops the loop: like the base class, but without a selector, and time jumps."""
        ready, scheduled = self._ready, self._scheduled
        while True:
            while scheduled and scheduled[0][2]._cancelled:
                heapq.heappop(scheduled)
            self.turns += 1
            if self.turns % TURNS_PER_LOOK == 0:
                self.look()
            self._pass_time(None if not scheduled else scheduled[0][0])
            now = self._now
            while scheduled and scheduled[0][0] <= now:
                ready.append(heapq.heappop(scheduled)[2])
            self._run_ready()
            if self._stopping:
                return

    def _run_ready(self) -> None:
        """Run what is ready now, but not what becomes ready meanwhile."""
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle.process
            if process is None or (process.alive and not process.paused):
                handle._run()
            elif process.alive:
                process.kept.append(handle)

    def _pass_time(self, due: float | None) -> None:
        if self.turns > MAX_TURNS:
            raise SimulationStuck(f"after {MAX_TURNS} turns of the loop there is no end, at {self._now:.6f}")
        if not self._ready and not self._stopping:
            if due is None:
                raise SimulationStuck("nothing is left to do")
            if due > self._now:
                self._now = due
                self._turns_at_one_time = 0
                return
        self._turns_at_one_time += 1
        if self._turns_at_one_time > MAX_TURNS_AT_ONE_TIME:
            raise SimulationStuck(f"callbacks follow each other at {self._now:.6f} without time passing")

    # -- what the base class leaves open

    def _process_events(self, event_list: list[object]) -> None: ...

    def _write_to_self(self) -> None: ...

    # -- callbacks and their owners

    def call_soon(  # type: ignore[override]  # the types of arguments do not matter here
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(self._now, callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _Handle(when, callback, args, self, context)
        self._timers += 1
        heapq.heappush(self._scheduled, (when, self._timers, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def resume(self, process: Process) -> None:
        """Let a paused process continue with everything that became due meanwhile, in that order."""
        process.paused = False
        kept, process.kept = process.kept, []
        self._ready.extend(kept)

    # -- connections

    async def create_connection(  # type: ignore[override]  # only what clients use
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: object
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert self.connect is not None
        if options.get("ssl"):
            raise OSError("there is no TLS in the simulation")
        protocol = protocol_factory()
        return await self.connect(host, port, protocol), protocol


def _nothing() -> None: ...

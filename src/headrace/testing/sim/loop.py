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
from collections.abc import Awaitable, Callable
from typing import Any

MAX_TURNS_AT_ONE_TIME = 20_000
"""So many without the clock moving mean that somebody spins."""
MAX_TURNS = 1_000_000
"""Thirty times what a run takes: somebody waits again and again for almost no time."""


class Process:
    """One simulated process on a host: dead once, paused any number of times."""

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.alive = True
        self.paused = False
        self.context = contextvars.Context()
        self.context.run(_CURRENT.set, self)
        self.kept: list[asyncio.Handle] = []
        """What became due while it was paused."""


_CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
NOBODY = contextvars.Context()
"""The context of what belongs to no process: the network, the store, the schedule of faults."""


def current_process() -> Process | None:
    return _CURRENT.get()


class SimulationStuck(Exception):
    """Nothing is left to do, or callbacks follow each other without time passing."""


class _OwnedHandle(asyncio.Handle):
    """A callback of a process: it runs only while that does."""

    __slots__ = ("process",)
    process: Process

    def _run(self) -> None:
        _run_if_alive(self, self.process, super()._run)


class _OwnedTimer(asyncio.TimerHandle):
    __slots__ = ("process",)
    process: Process

    def _run(self) -> None:
        _run_if_alive(self, self.process, super()._run)


def _run_if_alive(handle: asyncio.Handle, process: Process, run: Callable[[], None]) -> None:
    if process.paused and process.alive:
        process.kept.append(handle)
    elif process.alive:
        run()


class _NoSelector:
    """What the base loop asks for events: there are none, but time passes instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        self._loop.pass_time(timeout)
        return []


Connect = Callable[[str, int, asyncio.BaseProtocol], Awaitable[asyncio.Transport]]


class VirtualLoop(BaseEventLoop):
    _ready: Any
    _scheduled: Any

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = _NoSelector(self)
        self._turns_at_one_time = 0
        self.turns = 0
        self.on_turn: Callable[[], None] = _nothing
        """Called between two turns of the loop."""
        self.connect: Connect | None = None
        """Dials a simulated host."""

    def time(self) -> float:
        return self._now

    def pass_time(self, timeout: float | None) -> None:
        self.turns += 1
        self.on_turn()
        if self.turns > MAX_TURNS:
            raise SimulationStuck(f"after {MAX_TURNS} turns of the loop there is no end, at {self._now:.6f}")
        if timeout is None:
            raise SimulationStuck("nothing is left to do")
        if timeout > 0:
            self._now += timeout
            self._turns_at_one_time = 0
        else:
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
        process = _CURRENT.get() if context is None else context.get(_CURRENT)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        handle = _OwnedHandle(callback, args, self, context)
        handle.process = process
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = _CURRENT.get() if context is None else context.get(_CURRENT)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        timer = _OwnedTimer(when, callback, args, self, context)
        timer.process = process
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]  # what the base class does
        return timer

    def resume(self, process: Process) -> None:
        """Let a paused process go on with everything that became due meanwhile, in that order."""
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

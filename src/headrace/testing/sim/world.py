"""The world of one run: the loop, the random numbers, the network, the store, and the log of it all."""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.env.background import Background
from headrace.env.env import Disk, Env, Timer
from headrace.testing.sim.disk import Killed, MachineDisk, ProcessDisk
from headrace.testing.sim.loop import NOBODY, Process, VirtualLoop, current_process
from headrace.testing.sim.network import Network
from headrace.testing.sim.store import WatchedStore

T = TypeVar("T")

BIRTH_MS = 1_700_000_000_000
"""The wall clock when a run begins."""
LAST_LINES = 4000
SLOW_DISK_CHANCE = 0.01
SLOW_DISK_SECONDS = 0.5


class Violation(Exception):
    """A promise was broken: what, where, when."""


class SimClock:
    """The clock of a machine, which drifts, for one of its processes."""

    def __init__(self, loop: VirtualLoop, process: Process, rate: float, offset: float) -> None:
        self._loop = loop
        self._process = process
        self._rate = rate
        self._offset = offset

    def monotonic(self) -> float:
        return self._offset + self._loop.time() * self._rate

    boottime = monotonic

    def wall_ms(self) -> int:
        return BIRTH_MS + int(self.monotonic() * 1000)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(max(delay, 0.0) / self._rate, callback, context=self._context())

    def call_soon(self, callback: Callable[[], object]) -> object:
        return self._loop.call_soon(callback, context=self._context())

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(max(delay, 0.0) / self._rate)

    def _context(self) -> Any:
        """The context of the process: the network or the store may call for it."""
        return None if current_process() is self._process else self._process.context


class NobodysClock(SimClock):
    """The clock for everything that belongs to no process."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop, Process("nobody", "nowhere"), 1.0, 0.0)

    def _context(self) -> Any:
        return NOBODY


class SimRng:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.random = rng.random
        self.bytes = rng.randbytes

    def randrange(self, stop: int) -> int:
        return self._rng.randrange(stop)


class World:
    def __init__(self, seed: int, tell: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.loop = VirtualLoop()
        self.network = Network(self.loop, self.fork())
        self.loop.connect = self.network.connect
        self.loop.set_exception_handler(self._unhandled)
        self._blocking_rng = self.fork()
        self._tell = tell
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self.violations: list[str] = []
        self.counts: dict[str, int] = {}
        self.slow_disks = False
        self.remains: list[object] = []
        """Remains of killed processes: they must not be finalized while others run."""
        nobody = MachineDisk(self.fork(), lambda: 0)
        ensemble = Env(
            NobodysClock(self.loop), ProcessDisk(nobody, _nothing), SimRng(self.fork()), self._never, Background()
        )
        self.store = WatchedStore(ensemble, self.violated)

    def fork(self) -> random.Random:
        """A separate random generator: using it changes nothing for the others."""
        return random.Random(self.rng.getrandbits(64))

    def say(self, text: str) -> None:
        line = f"{self.loop.time():10.4f} {text}"
        self.lines.append(line)
        if self._tell is not None:
            self._tell(line)

    def count(self, what: str, amount: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + amount

    def bury_tasks(self) -> None:
        """Keep the tasks of a process that dies as they are."""
        self.remains.append(list(asyncio.all_tasks(self.loop)))

    def violated(self, text: str) -> None:
        self.violations.append(f"at {self.loop.time():.4f}: {text}")
        self.say(f"VIOLATION {text}")

    def env(self, process: Process, disk: Disk, rate: float = 1.0, offset: float = 0.0) -> Env:
        clock = SimClock(self.loop, process, rate, offset)

        def start_blocking(work: Callable[[], T]) -> asyncio.Future[T]:
            """Simulate a thread: the work is done some time later, whether anybody still waits for it or not."""
            future: asyncio.Future[T] = self.loop.create_future()
            clock.call_later(self._blocking_seconds(), lambda: _run_work(work, future))
            return future

        return Env(clock, disk, SimRng(self.fork()), start_blocking, Background())

    def _blocking_seconds(self) -> float:
        if self.slow_disks and self._blocking_rng.random() < SLOW_DISK_CHANCE:
            return self._blocking_rng.random() * SLOW_DISK_SECONDS
        return 0.0002 + self._blocking_rng.expovariate(2000.0)

    @staticmethod
    def _never(work: Callable[[], T]) -> asyncio.Future[T]:
        raise AssertionError("the store does no blocking work")

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Killed) or "was destroyed" in str(context.get("message")):
            return
        process = current_process()
        name = process.name if process is not None else "nobody"
        self.violated(f"{name}: unhandled: {context.get('message')}: {error!r}")


def _run_work(work: Callable[[], T], future: asyncio.Future[T]) -> None:
    try:
        result = work()
    except Exception as error:
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(result)


def _nothing() -> None: ...


class LogLines(logging.Handler):
    """Adds the brokers' log messages to the world's, with broker and time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process()
        name = process.name if process is not None else "nobody"
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Killed):
            return
        self._world.say(f"{name} {record.levelname} {record.name.removeprefix('headrace.')}: {text}")
        if "internal error" in text or (error is not None and record.levelno >= logging.ERROR):
            trace = "".join(traceback.format_exception(error)) if error is not None else ""
            self._world.violated(f"{name}: {text} ({error!r})\n{trace}")

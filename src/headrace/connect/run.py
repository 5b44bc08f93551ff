"""What the runs of sources and sinks share: where they run, what is counted, and the thread of a task.

`Run.at` is called at each step with its name, for tests that end the run there (`headrace.testing.connectors`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.client.admin import BROKER_DEFAULT
from headrace.client.cluster import Cluster

T = TypeVar("T")


def no_steps(step: str) -> None:
    """Does nothing at a step; the default."""


@dataclass(frozen=True, slots=True)
class NewTopics:
    """How to create the missing topics of a source."""

    partitions: int = BROKER_DEFAULT
    replication: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RunCounts:
    """Counted since the process started; restarts of the tasks do not reset them."""

    records: int = 0
    bytes: int = 0
    transactions: int = 0
    """The committed transactions of a source, or the writes of a sink."""
    restarts: int = 0
    schema_changes: int = 0
    lag: int = 0
    """For a sink, the records that existed and were not written yet when it last looked."""
    gauges: dict[str, float] = field(default_factory=dict)
    """Values that the tasks measure themselves, by task and name."""


@dataclass(slots=True)
class Run:
    """One connector being run."""

    cluster: Cluster
    name: str
    once: bool = False
    """Whether the run ends when all existing records are processed."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    counts: RunCounts = field(default_factory=RunCounts)
    at: Callable[[str], None] = no_steps
    new_topics: NewTopics = NewTopics()
    sources_beside: bool = False
    """Whether sources run in the same command, which may still create the topics that a sink reads."""

    def wall_ms(self) -> int:
        return self.cluster.env.clock.wall_ms()

    async def pause(self, seconds: float) -> None:
        """Wait for that long, or until the run is to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()


class TaskThread:
    """The thread in which all calls of one task are made, one after the other."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    def call(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def finish(self, close: Callable[[], None] | None) -> None:
        """Close after the current call: a thread cannot be interrupted, and only it may close what it holds."""
        try:
            if close is not None:
                await asyncio.shield(self.call(close))
        finally:
            self._pool.shutdown(wait=False)

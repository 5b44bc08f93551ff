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
    """Since the process started; restarts of the tasks do not set them back."""

    records: int = 0
    bytes: int = 0
    transactions: int = 0
    """Of a source: committed ones. Of a sink: writes."""
    restarts: int = 0
    schema_changes: int = 0
    lag: int = 0
    """Of a sink: records that were there and not written yet, when it last looked."""
    gauges: dict[str, float] = field(default_factory=dict)
    """What the tasks measure themselves: task and name -> value."""


@dataclass(slots=True)
class Run:
    """One connector being run."""

    cluster: Cluster
    name: str
    once: bool = False
    """End when everything that was there is done."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    counts: RunCounts = field(default_factory=RunCounts)
    at: Callable[[str], None] = no_steps
    new_topics: NewTopics = NewTopics()

    def wall_ms(self) -> int:
        return self.cluster.env.clock.wall_ms()

    async def pause(self, seconds: float) -> None:
        """At most that long: not once it is to stop."""
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
        """After what it does now: a thread cannot be stopped, and what it holds is closed by it alone."""
        try:
            if close is not None:
                await asyncio.shield(self.call(close))
        finally:
            self._pool.shutdown(wait=False)

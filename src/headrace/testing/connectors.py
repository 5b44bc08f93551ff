"""The test kit for connectors: runs one against a real broker, ended at every step, and reads what came of it.

    kills = await killed_everywhere(cluster, definition, feed)      # feed(n): more input before each run
    assert await committed_values(cluster, "numbers") == everything_that_was_fed

A run that is ended in this process leaves an open transaction, as a process does that is killed. To have a process
killed for real (SIGKILL) at a step:

    python -m headrace.testing.connectors FILE --bootstrap-server HOST:PORT --kill-at stored:2
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.fetching import FetchLimits, RecordReader
from headrace.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, offset_ranges
from headrace.connect import sink_run, source_run
from headrace.connect.api import Source
from headrace.connect.definition import ConnectorDefinition, load_file
from headrace.connect.runner import Runner
from headrace.env.real import real_env
from headrace.model.topics import TopicPartition
from headrace.records.reader import Record

TIMES = (1, 2)
"""The first time that a run comes to a step, and the second."""


class Killed(BaseException):
    """Ends a run where it stands."""


class KillAt:
    """For `Runner(at=...)`: ends the run when it comes to a step for the nth time."""

    def __init__(self, step: str, time: int = 1, how: Callable[[], None] | None = None) -> None:
        self._step = step
        self._left = time
        self._how = how

    def __call__(self, step: str) -> None:
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                if self._how is not None:
                    self._how()
                raise Killed(step)


def steps_of(definition: ConnectorDefinition) -> Sequence[str]:
    return source_run.STEPS if isinstance(definition.connector, Source) else sink_run.STEPS


async def run_killed(cluster: Cluster, definition: ConnectorDefinition, step: str, time: int = 1) -> bool:
    """Run until that step, or to the end if it does not come to it; whether it was ended."""
    try:
        await Runner(cluster, definition, once=True, at=KillAt(step, time)).run()
    except Killed:
        return True
    return False


async def run_to_the_end(cluster: Cluster, definition: ConnectorDefinition) -> None:
    await Runner(cluster, definition, once=True).run()


async def killed_everywhere(
    cluster: Cluster,
    definition: ConnectorDefinition,
    feed: Callable[[int], Awaitable[None]],
    times: Sequence[int] = TIMES,
) -> int:
    """Feed and kill at each step in turn, then run to the end; how many runs were killed."""
    kills = number = 0
    for step in steps_of(definition):
        for time in times:
            await feed(number)
            number += 1
            kills += await run_killed(cluster, definition, step, time)
    await feed(number)
    await run_to_the_end(cluster, definition)
    return kills


async def committed_records(cluster: Cluster, topic: str, *, now: bool = False) -> list[Record]:
    """What a read_committed reader finds in all partitions, one after the other.

    It waits for transactions that are open, or just committed; `now` reads only what is before them.
    """
    view = await cluster.metadata([topic])
    if topic not in view.topics:
        return []
    places = [TopicPartition(topic, one.number) for one in view.topic(topic).partitions]
    ranges = await offset_ranges(cluster, places, READ_COMMITTED if now else READ_UNCOMMITTED)
    reader = RecordReader(cluster, {one: ranges[one][0] for one in places}, FetchLimits(isolation=READ_COMMITTED))
    found: dict[TopicPartition, list[Record]] = {one: [] for one in places}
    while any(reader.positions[one] < ranges[one][1] for one in places):
        for fetched in await reader.poll():
            found[fetched.partition] += fetched.records()
    return [record for place in places for record in found[place]]


async def committed_values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in await committed_records(cluster, topic)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs a connector and kills its process at a step.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--kill-at", required=True, metavar="STEP:TIME")
    given = parser.parse_args()
    step, _, time = given.kill_at.partition(":")

    async def run() -> None:
        async with Cluster(real_env(), parse_bootstrap(given.bootstrap_server)) as cluster:
            kill = KillAt(step, int(time or 1), lambda: os.kill(os.getpid(), signal.SIGKILL))
            await Runner(cluster, load_file(given.file), once=True, at=kill).run()

    asyncio.run(run())


if __name__ == "__main__":
    main()

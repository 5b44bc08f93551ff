"""W13: consumer groups of a hundred members, in both protocols."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from bench import probes
from bench.group_members import ClassicGroup, ConsumerGroup, Exchanges, Group, Link, commit_error, encoded
from bench.measure import Figures, Latency, Measurement, latencies, rates
from bench.registry import workload
from bench.run import Run
from bench.warmup import is_steady
from headrace.cli.perf.measuring import percentile

MEMBERS = 100
COMMITTERS = 50

_group_numbers = itertools.count(1)


@workload("W13", "Groups of 100")
def groups_of_a_hundred(run: Run) -> Iterator[Measurement]:
    """A hundred members with a connection each, on a topic of a hundred partitions, in the classic protocol and
    in that of KIP-848. Rebalance: from the first member's join until all hold their partition in the same
    generation. Commits: one partition each from 50 members. Heartbeats: from all 100. One request in flight per
    connection, so that rates and latencies follow from each other. The client is one Python event loop beside
    the broker: the broker's CPU per request (s per million, which is ms per thousand) is the figure to look at.

    A member that waits for the others sends a heartbeat every 50 ms, much more often than a real one, so that
    news reach it soon. A group settles once before the clock runs, and each kind of request is sent until its
    cost is steady.
    """
    topic = run.topic(MEMBERS)
    for protocol, kind in (("classic", ClassicGroup), ("kip848", ConsumerGroup)):
        yield from asyncio.run(protocol_cases(run, protocol, kind, topic))


async def protocol_cases(
    run: Run, protocol: str, kind: Callable[[str, str, Sequence[Link]], Group], topic: str
) -> list[Measurement]:
    probes.reset_peak_rss(run.system.pids)
    links = await asyncio.gather(*(Link.open(run.system.port) for _ in range(MEMBERS)))
    try:

        def new_group() -> Group:
            return kind(f"bench-{protocol}-{next(_group_numbers)}", topic, links)

        found = [await rebalances(run, f"{protocol} rebalance", new_group)]
        group = new_group()
        await group.settle()
        if isinstance(group, ClassicGroup):
            commits = [encoded(group.commit(number)) for number in range(COMMITTERS)]
            measured = await repeated(run, "commits", links, commits, commit_error)
            found.append(measured.with_check(await group.missing_commits(COMMITTERS)))
        beats = [encoded(group.heartbeat(number)) for number in range(MEMBERS)]
        found.append(await repeated(run, f"heartbeats {protocol}", links, beats, group.heartbeat_error))
        await group.leave()
        return found
    finally:
        for link in links:
            link.close()


async def rebalances(run: Run, case: str, new_group: Callable[[], Group]) -> Measurement:
    """The median of some groups that settle and leave; the first one is not counted."""
    seconds, cpu_ms = [], []
    pids = run.system.pids
    for _ in range(1 + run.choose(5, 1)):
        group = new_group()
        before = probes.cpu_seconds(pids)
        seconds.append(await group.settle())
        cpu_ms.append((probes.cpu_seconds(pids) - before) * 1e3)
        await group.leave()
    figures = {"settled_s": statistics.median(seconds[1:]), "settle_cpu_ms": statistics.median(cpu_ms[1:])}
    return Measurement(case, {**figures, **run.memory()}, notes={"first_settled_s": round(seconds[0], 3)})


@dataclass(frozen=True, slots=True)
class Slice:
    """All connections for some time."""

    seconds: float
    cpu_seconds: float
    client_cpu_seconds: float
    exchanges: Sequence[Exchanges]

    @property
    def requests(self) -> int:
        return sum(len(one.seconds) for one in self.exchanges)


Repeat = Callable[[float], Awaitable[Slice]]


async def repeated(
    run: Run, case: str, links: Sequence[Link], requests: Sequence[bytes], error_of: Callable[[bytes], int]
) -> Measurement:
    """Every connection repeats its request: until the cost no longer falls, and then under the clock."""
    pids = run.system.pids

    async def repeat(duration: float) -> Slice:
        before, own_before, started = probes.cpu_seconds(pids), time.process_time(), time.perf_counter()
        end = started + duration
        found = await asyncio.gather(
            *(link.repeat(request, end, error_of) for link, request in zip(links, requests, strict=False))
        )
        seconds = time.perf_counter() - started
        return Slice(seconds, probes.cpu_seconds(pids) - before, time.process_time() - own_before, found)

    warm = await warm_costs(repeat, run.choose(1.0, 0.3), run.choose(range(5, 12), range(2, 4)))
    measured = await repeat(run.choose(5.0, 0.7))
    taken = [one for exchanges in measured.exchanges for one in exchanges.seconds]
    codes = [code for exchanges in measured.exchanges for code in exchanges.error_codes]
    figures = rates(seconds=measured.seconds, cpu_seconds=measured.cpu_seconds, requests=len(taken))
    share = round(measured.client_cpu_seconds / measured.seconds, 3)
    notes: dict[str, object] = {"requests": len(taken), "client_cpu_share": share, "warm_up_us": warm}
    if codes:
        notes["error_codes"] = sorted(set(codes))
    return Measurement(case, {**figures, **round_trips(taken), **run.memory()}, len(codes), notes)


async def warm_costs(repeat: Repeat, seconds: float, slices: range) -> list[float]:
    """CPU µs per request, slice by slice, until they are steady; between a least and a most number of them."""
    costs: list[float] = []
    while len(costs) < slices.start or (len(costs) < slices.stop and not is_steady(costs)):
        done = await repeat(seconds)
        costs.append(round(done.cpu_seconds * 1e6 / done.requests, 1))
    return costs


def round_trips(seconds: Sequence[float]) -> Figures:
    ordered = sorted(one * 1e6 for one in seconds)
    p50, p99, p999 = (percentile(ordered, percent) for percent in (50, 99, 99.9))
    return latencies(Latency(p50, p99, p999, ordered[-1]))

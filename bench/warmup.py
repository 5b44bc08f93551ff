"""Work done before anything is measured, the same on both systems: a JVM compiles its hot paths meanwhile.

Each kind of work is repeated in slices until its cost in CPU per request no longer falls, or a limit is
reached. The costs of the slices go into the results, so that a reader can see whether a system was warm when it
was measured.
"""

from __future__ import annotations

from pathlib import Path

from bench.loadgen import Load
from bench.requests import fetch
from bench.run import Run
from bench.shapes import KB, MB, PARTITIONS, produce_file

STEADY = 0.95
"""A slice that costs at least this part of the one before shows no more warming up."""
MAX_SLICES = 15
MAX_SLICES_QUICK = 4
LARGE_PER_SLICE = 300
"""Batches of 1 MB in a slice: the disk must not fill."""

Costs = dict[str, list[float]]
"""CPU µs per request of each slice, by kind of work."""


def warm_up(run: Run, *, small_only: bool = False) -> Costs:
    """`small_only` leaves out large batches, where the workload has none."""
    topic = run.topic(PARTITIONS)
    seconds = run.choose(1.5, 0.6)
    reads = run.requests(fetch(topic, partition, 0, 16 * KB) for partition in range(PARTITIONS))
    kinds = {"produce 100B": Load(produce_file(run, topic, record_size=100), 16, 4, seconds=seconds)}
    if not small_only:
        for name, size, connections, inflight in (("16KB", 16 * KB, 8, 4), ("1MB", MB, 4, 2)):
            file = produce_file(run, topic, record_size=KB, batch_size=size)
            kinds[f"produce {name}"] = slice_load(file, connections, inflight, seconds, size)
    kinds["fetch 16KB"] = Load(reads, 16, 1, seconds=seconds)
    costs = {name: warm_one(run, load) for name, load in kinds.items()}
    if not small_only:
        # The first kind bore most of the warming up: once more, to see that it is over.
        costs["produce 100B again"] = warm_one(run, kinds["produce 100B"])
    run.drop_topics()
    run.acknowledged = 0
    return costs


def slice_load(file: Path, connections: int, inflight: int, seconds: float, size: int) -> Load:
    return Load(file, connections, inflight, seconds=seconds, count=LARGE_PER_SLICE * MB // size)


def warm_one(run: Run, load: Load) -> list[float]:
    costs: list[float] = []
    while len(costs) < run.choose(MAX_SLICES, MAX_SLICES_QUICK):
        result = run.load(load)
        if not result.requests:
            raise ConnectionError("no request was answered while warming up")
        costs.append(round(result.server_cpu_seconds * 1e6 / result.requests, 1))
        if is_steady(costs):
            break
    return costs


def is_steady(costs: list[float]) -> bool:
    """Whether neither of the last two slices was much cheaper than the cheapest before them."""
    return len(costs) >= 3 and min(costs[-2:]) >= STEADY * min(costs[:-2])

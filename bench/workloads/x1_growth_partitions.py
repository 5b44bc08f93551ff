"""G1: what a record and the memory cost as the number of partitions grows."""

from __future__ import annotations

from collections.abc import Iterator

from bench import probes
from bench.admin import create_topics
from bench.loadgen import Load
from bench.measure import Measurement
from bench.registry import workload
from bench.requests import batch, fetch, produce, random_values
from bench.run import Run, load_measurement
from bench.warmup import warm_up

COUNTS = (1, 10, 100, 1_000, 10_000)
QUICK_COUNTS = (1, 100, 1_000)
PER_TOPIC = 500


@workload("G1", "Growth: partitions", own_system=True, max_rounds=3, in_quick=False)
def growth_with_partitions(run: Run) -> Iterator[Measurement]:
    """Single records of 100 B written to, then read from, all of 1 to 10,000 partitions in turn, 4 connections
    with 16 requests in flight: cost of a request, and resident memory."""
    run.system.start()
    warm_up(run, small_only=True)
    places: list[tuple[str, int]] = []
    for count in run.choose(COUNTS, QUICK_COUNTS):
        places += add_partitions(run, len(places), count)
        yield from growth_cases(run, places)


def add_partitions(run: Run, have: int, want: int) -> list[tuple[str, int]]:
    new: dict[str, int] = {}
    while have < want:
        size = min(PER_TOPIC, want - have)
        new[f"grow-{have}"] = size
        have += size
    create_topics(run.system.bootstrap, new)
    return [(topic, number) for topic, size in new.items() for number in range(size)]


def growth_cases(run: Run, places: list[tuple[str, int]]) -> Iterator[Measurement]:
    body = batch(random_values(1, 100))
    writes = run.requests(produce(topic, number, body) for topic, number in places)
    reads = run.requests(fetch(topic, number, 0, len(body)) for topic, number in places)
    run.load(Load(writes, connections=4, inflight=16, count=max(len(places), 2_000)))
    for case, file in (("produce", writes), ("fetch", reads)):
        result = run.load(Load(file, connections=4, inflight=16, seconds=run.choose(2.0, 0.7)))
        memory = {"x": float(len(places)), "rss_mb": probes.rss_mb(run.system.pids)}
        yield load_measurement(f"{case} at {len(places)}", result, "", result.round_trip, memory)

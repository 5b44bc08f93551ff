"""G2: what a request and the memory cost as the number of connections grows."""

from __future__ import annotations

from collections.abc import Iterator

from bench import probes
from bench.loadgen import Load
from bench.measure import Measurement
from bench.registry import workload
from bench.run import Run, load_measurement
from bench.shapes import PARTITIONS, produce_file
from bench.warmup import warm_up

COUNTS = (1, 10, 100, 1_000, 5_000)
QUICK_COUNTS = (1, 100, 1_000)
RATE = 5_000


@workload("G2", "Growth: connections", own_system=True, max_rounds=3, in_quick=False)
def growth_with_connections(run: Run) -> Iterator[Measurement]:
    """5,000 single records a second, open loop, spread over 1 to 5,000 connections: cost of a request, latency,
    and the peak of resident memory."""
    run.system.start()
    warm_up(run, small_only=True)
    topic = run.topic(PARTITIONS)
    file = produce_file(run, topic, record_size=100)
    for count in run.choose(COUNTS, QUICK_COUNTS):
        pids = run.system.pids
        probes.reset_peak_rss(pids)
        result = run.load(Load(file, connections=count, rate=RATE, seconds=run.choose(3.0, 1.0)))
        memory = {"x": float(count), "rss_mb": probes.peak_rss_mb(pids)}
        yield load_measurement(f"produce at {count}", result, "", result.round_trip, memory)

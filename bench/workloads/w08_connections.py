"""W8: thousands of connections."""

from __future__ import annotations

from collections.abc import Iterator

from bench import probes
from bench.loadgen import Load
from bench.measure import Measurement
from bench.registry import workload
from bench.run import Run, load_measurement
from bench.shapes import PARTITIONS, produce_file

COUNTS = (1_000, 5_000)
QUICK_COUNTS = (1_000,)
ACTIVE_RATE = 5_000


@workload("W8", "Thousands of connections")
def thousands_of_connections(run: Run) -> Iterator[Measurement]:
    """Single records of 100 B: from 16 connections beside 1,000 and 5,000 that are open and idle, and at 5,000
    records a second spread over that many connections (open loop). Memory is the growth against no such
    connections."""
    topic = run.topic(PARTITIONS)
    file = produce_file(run, topic, record_size=100)
    seconds = run.choose(3.0, 1.0)
    for count in run.choose(COUNTS, QUICK_COUNTS):
        idle = Load(file, connections=16, seconds=seconds, idle=count)
        active = Load(file, connections=count, rate=ACTIVE_RATE, seconds=seconds)
        yield connection_case(run, f"{count} idle", idle, count)
        yield connection_case(run, f"{count} active", active, count)


def connection_case(run: Run, case: str, load: Load, count: int) -> Measurement:
    pids = run.system.pids
    before_mb = probes.rss_mb(pids)
    probes.reset_peak_rss(pids)
    result = run.load(load)
    memory = run.memory()
    memory["rss_kb_per_connection"] = max(0.0, memory["rss_peak_mb"] - before_mb) * 1024 / count
    memory["connect_ms_each"] = result.connect_seconds * 1e3 / count
    return load_measurement(case, result, "", result.round_trip, memory)

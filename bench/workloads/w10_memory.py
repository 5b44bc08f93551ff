"""W10: memory, idle and under load."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import probes
from bench.loadgen import Load
from bench.measure import Measurement
from bench.registry import workload
from bench.requests import fetch
from bench.run import IN, OUT, Run, load_measurement
from bench.shapes import KB, MB, PARTITIONS, produce_file

SETTLE_SECONDS = 2.0


@workload("W10", "Memory idle and loaded", own_system=True)
def memory_idle_and_loaded(run: Run) -> Iterator[Measurement]:
    """Resident memory some seconds after the start, and the peak while batches of 1 MB, single records, and
    fetches of 1 MB are served, one after the other, on 8, 100 and 16 connections."""
    run.system.start()
    time.sleep(SETTLE_SECONDS)
    pids = run.system.pids
    yield Measurement("idle", {"rss_mb": probes.rss_mb(pids), **run.memory()})
    probes.reset_peak_rss(pids)
    topic = run.topic(PARTITIONS)
    seconds = run.choose(2.0, 0.7)
    large = produce_file(run, topic, record_size=KB, batch_size=MB)
    small = produce_file(run, topic, record_size=100)
    reads = run.requests(fetch(topic, partition, 0, MB) for partition in range(PARTITIONS))
    for case, payload, load in (
        ("batches of 1MB", OUT, Load(large, 8, 4, count=run.choose(1500, 400), seconds=seconds)),
        ("single records", "", Load(small, 100, 8, seconds=seconds)),
        ("fetches of 1MB", IN, Load(reads, 16, 2, seconds=seconds)),
    ):
        result = run.load(load)
        yield load_measurement(case, result, payload, result.round_trip, run.memory())
    yield Measurement("loaded", {"rss_mb": probes.rss_mb(pids), **run.memory()})

"""W16: every batch on the disk before it is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from bench import probes
from bench.asking import acknowledged
from bench.loadgen import Load
from bench.measure import Measurement
from bench.registry import workload
from bench.requests import batch, produce, random_values
from bench.run import OUT, Run
from bench.shapes import PARTITIONS, produce_file

CONNECTIONS = 64
CHECKED = 20


@workload("W16", "fsync per batch")
def fsync_per_batch(run: Run) -> Iterator[Measurement]:
    """Topics with flush.messages=1: single records of 100 B from 64 connections with one request in flight
    each, into one partition and into eight. Errors: records of a check afterwards that were acknowledged
    without an fsync or fdatasync."""
    for partitions in (1, PARTITIONS):
        topic = run.topic(partitions, {"flush.messages": "1"})
        file = produce_file(run, topic, record_size=100, partitions=partitions)
        run.load(Load(file, CONNECTIONS, seconds=run.choose(1.0, 0.5)))
        load = Load(file, CONNECTIONS, seconds=run.choose(3.0, 1.0))
        found = run.measure(f"{partitions} partitions", load, OUT)
        missing, doubt = missing_syncs(run, topic)
        yield found.with_check(missing, **doubt)
        run.drop_topics()


def missing_syncs(run: Run, topic: str) -> tuple[int, dict[str, str]]:
    """After the clock has stopped: how many of some records, sent one by one, were acknowledged without a sync."""
    request = produce(topic, 0, batch(random_values(1, 100)))
    try:
        with probes.counted_syncs(run.system.server.pid) as syncs:
            taken = sum(acknowledged(run.system.port, request) for _ in range(CHECKED))
    except OSError as problem:
        return 0, {"unverified": f"syncs were not counted: {problem}"}
    return max(0, CHECKED - min(taken, len(syncs))), {"syncs": f"{len(syncs)} for {taken} acknowledged"}

"""Work done before anything is measured, the same on both systems: the JVM compiles its hot paths meanwhile."""

from __future__ import annotations

from bench.loadgen import Load
from bench.requests import fetch
from bench.run import Run
from bench.shapes import KB, MB, PARTITIONS, produce_file

FULL_SECONDS = 5.0
QUICK_SECONDS = 1.5


def warm_up(run: Run) -> None:
    topic = run.topic(PARTITIONS)
    seconds = run.choose(FULL_SECONDS, QUICK_SECONDS)
    small = produce_file(run, topic, record_size=100)
    medium = produce_file(run, topic, record_size=KB, batch_size=16 * KB)
    large = produce_file(run, topic, record_size=KB, batch_size=MB)
    reads = run.requests(fetch(topic, partition, 0, 16 * KB) for partition in range(PARTITIONS))
    run.load(Load(small, connections=16, inflight=4, seconds=seconds))
    run.load(Load(medium, connections=8, inflight=4, seconds=seconds / 2))
    run.load(Load(large, connections=4, inflight=2, count=run.choose(1000, 200), seconds=seconds))
    run.load(Load(reads, connections=16, inflight=1, seconds=seconds / 2))
    run.drop_topics()

"""W16: every batch on the disk before it is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from bench.loadgen import Load
from bench.measure import Measurement
from bench.registry import workload
from bench.run import OUT, Run
from bench.shapes import PARTITIONS, produce_file

CONNECTIONS = 64


@workload("W16", "fsync per batch")
def fsync_per_batch(run: Run) -> Iterator[Measurement]:
    """Topics with flush.messages=1: single records of 100 B from 64 connections with one request in flight
    each, into one partition and into eight."""
    for partitions in (1, PARTITIONS):
        topic = run.topic(partitions, {"flush.messages": "1"})
        file = produce_file(run, topic, record_size=100, partitions=partitions)
        run.load(Load(file, CONNECTIONS, seconds=run.choose(1.0, 0.5)))
        yield run.measure(f"{partitions} partitions", Load(file, CONNECTIONS, seconds=run.choose(4.0, 1.5)), OUT)
        run.drop_topics()

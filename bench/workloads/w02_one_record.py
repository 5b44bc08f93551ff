"""W2: one record of 100 B per request."""

from __future__ import annotations

from collections.abc import Iterator

from bench import probes
from bench.clients import librdkafka
from bench.loadgen import Load
from bench.measure import Measurement, latencies, rates
from bench.registry import workload
from bench.run import Run
from bench.shapes import PARTITIONS, produce_file

CASES = {"1x1": (1, 1), "16x1": (16, 1), "100x1": (100, 1), "4x64 pipelined": (4, 64)}


@workload("W2", "One record per request")
def one_record_per_request(run: Run) -> Iterator[Measurement]:
    """One record of 100 B in every Produce, acks=all, from 1, 16 and 100 connections with one request in
    flight, and from 4 with 64 in flight; then librdkafka, one record at a time."""
    topic = run.topic(PARTITIONS)
    file = produce_file(run, topic, record_size=100)
    stored_before = 0
    for case, (connections, inflight) in CASES.items():
        run.acknowledged = stored_before
        run.load(Load(file, connections, inflight, seconds=run.choose(1.0, 0.3)))
        found = run.measure(case, Load(file, connections, inflight, seconds=run.choose(3.0, 1.0)))
        stored_before = run.acknowledged
        yield found.with_check(run.lost(topic, PARTITIONS))
    probes.reset_peak_rss(run.system.pids)
    before = run.cpu_seconds()
    done = librdkafka("sync", run.system.bootstrap, topic, records=run.choose(10_000, 2_000), size=100)
    figures = rates(seconds=done.seconds, cpu_seconds=run.cpu_seconds() - before, requests=done.records)
    yield Measurement("librdkafka one by one", {**figures, **latencies(done.latency), **run.memory()}, done.errors)

"""W7: thousands of partitions on one broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import probes
from bench.admin import create_topics
from bench.loadgen import Load
from bench.measure import Measurement, latencies, rates
from bench.registry import workload
from bench.requests import batch, produce, random_values
from bench.run import Run
from bench.warmup import warm_up

COUNTS = (1_000, 5_000, 10_000)
QUICK_COUNTS = (500,)
PER_TOPIC = 500
IDLE_SECONDS = 2.0


@workload("W7", "Thousands of partitions", own_system=True, max_rounds=2)
def thousands_of_partitions(run: Run) -> Iterator[Measurement]:
    """1,000, 5,000 and 10,000 partitions in topics of 500: time to create, memory, cost of single records
    spread over all of them, and the CPU that the broker uses with no traffic at all."""
    run.system.start()
    warm_up(run, small_only=True)
    topics: list[str] = []
    for count in run.choose(COUNTS, QUICK_COUNTS):
        started = time.monotonic()
        new = [f"wide-{number}" for number in range(len(topics), count // PER_TOPIC)]
        before = count - len(new) * PER_TOPIC
        create_topics(run.system.bootstrap, dict.fromkeys(new, PER_TOPIC))
        create_seconds = time.monotonic() - started
        topics += new
        yield spread_case(run, topics, create_seconds / (count - before))


def spread_case(run: Run, topics: list[str], create_seconds_each: float) -> Measurement:
    body = batch(random_values(1, 100))
    count = len(topics) * PER_TOPIC
    file = run.requests(produce(topic, number, body) for number in range(PER_TOPIC) for topic in topics)
    # The first record of a partition opens its files: all get one before the clock starts.
    first = run.load(Load(file, connections=4, inflight=16, count=count))
    result = run.load(Load(file, connections=4, inflight=16, seconds=run.choose(3.0, 1.5)))
    idle_started = run.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    idle_percent = (run.cpu_seconds() - idle_started) / IDLE_SECONDS * 100
    figures = rates(
        seconds=result.seconds, cpu_seconds=result.server_cpu_seconds, requests=result.requests
    ) | latencies(result.round_trip)
    figures |= {
        "create_ms_per_partition": create_seconds_each * 1e3,
        "rss_mb": probes.rss_mb(run.system.pids),
        "idle_cpu_percent": idle_percent,
        **run.memory(),
    }
    return Measurement(f"{count} partitions", figures, first.errors + result.errors)

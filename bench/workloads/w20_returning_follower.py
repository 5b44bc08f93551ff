"""W20: a follower that was away catches up, while producers go on."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.acks import SteadyProducer
from bench.clients import librdkafka
from bench.clusters import PATIENCE_S, running_cluster
from bench.measure import Measurement
from bench.registry import workload
from bench.run import Run
from bench.shapes import KB
from headrace.testing.process_cluster import wait_until

PARTITIONS = 6
TOPIC = "missed"
STEADY_S, QUICK_STEADY_S = 6.0, 3.0


@workload("W20", "A returning follower catches up", own_system=True, max_rounds=3)
def returning_follower(run: Run) -> Iterator[Measurement]:
    """Three brokers, 6 partitions with three replicas, two of which must be in sync. One broker is stopped; a
    librdkafka producer writes 1.5 GB in records of 1 KB with acks=all; the broker starts again. MB/s: what it
    missed, from the start of its process until it is in every in-sync set. Beside it a steady idempotent producer
    writes 600 records a second: p99 of its acknowledgements before the return, and until everything is in sync.
    CPU is that of all three brokers meanwhile."""
    with running_cluster(run.system.name) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        away = next(id for id in sorted(cluster.servers.brokers) if id != cluster.controller())
        cluster.terminate(away)
        records = run.choose(1_500_000, 200_000)
        sent = librdkafka("produce", cluster.bootstrap, TOPIC, records=records, size=KB)
        with SteadyProducer(cluster.bootstrap, TOPIC, PARTITIONS) as producer:
            producer.wait_for_all(PATIENCE_S)
            began = time.monotonic()
            time.sleep(run.choose(STEADY_S, QUICK_STEADY_S))
            returned, cpu = time.monotonic(), cluster.cpu_seconds()
            cluster.restart(away)
            wait_until(lambda: cluster.is_whole(TOPIC, PARTITIONS), "all replicas in sync", PATIENCE_S)
            seconds = time.monotonic() - returned
            cpu = cluster.cpu_seconds() - cpu
        figures = {
            "mb_per_s": sent.records * KB / 1e6 / seconds,
            "seconds": seconds,
            "cpu_ms_per_gb": cpu * 1e3 / (sent.records * KB / 1e9),
            "p99_before_us": producer.latency_us(0.99, began, returned),
            "p99_us": producer.latency_us(0.99, returned, returned + seconds),
        }
        yield Measurement("catch up", figures, sent.errors + len(producer.failures))

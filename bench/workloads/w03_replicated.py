"""W3: acks=all with three replicas."""

from __future__ import annotations

from collections.abc import Iterator

from bench import probes
from bench.admin import end_offset
from bench.clients import ClientResult, librdkafka
from bench.clusters import BenchCluster, running_cluster
from bench.measure import Measurement, rates
from bench.registry import workload
from bench.run import Run
from bench.shapes import KB
from bench.warmup import is_steady

PARTITIONS = 6
WARM_UP_RECORDS = 100_000
TOPIC = "replicated"


@workload("W3", "acks=all, three brokers, three replicas", own_system=True)
def replicated(run: Run) -> Iterator[Measurement]:
    """Three brokers on one machine, 6 partitions with three replicas each, two of which must be in sync. One
    librdkafka producer with its own batching (5 ms of linger, batches of up to 1 MB) sends records of 1 KB with
    acks=all. CPU is that of all three brokers, MB/s are counted once, not per replica. The cluster is new each
    round and warmed up until its cost is steady. Errors: records that failed or that the topic does not hold."""
    with running_cluster(run.system.name) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        warmed: list[float] = []
        sent = 0
        while len(warmed) < run.choose(8, 3) and not is_steady(warmed):
            done, cpu_s = produce(cluster, WARM_UP_RECORDS // run.choose(1, 2))
            warmed.append(round(cpu_s * 1e6 / max(1, done.records), 1))
            sent += done.records - done.errors
        run.reservoir.ready(quiet=False)
        probes.reset_peak_rss(cluster.pids)
        done, cpu_s = produce(cluster, run.choose(600_000, 150_000))
        sent += done.records - done.errors
        stored = sum(end_offset(cluster.bootstrap, TOPIC, number) for number in range(PARTITIONS))
        figures = rates(seconds=done.seconds, cpu_seconds=cpu_s, records=done.records, size=done.records * KB)
        figures["rss_peak_mb"] = probes.peak_rss_mb(cluster.pids)
        if done.busiest_thread is not None:
            figures["client_thread_share"] = done.busiest_thread
        lost = max(0, sent - stored)
        yield Measurement("1KB", figures, done.errors + lost, {"warm_up_cpu_us_per_record": warmed})


def produce(cluster: BenchCluster, records: int) -> tuple[ClientResult, float]:
    """The client's result and the CPU seconds of all brokers."""
    before = cluster.cpu_seconds()
    done = librdkafka("produce", cluster.bootstrap, TOPIC, records=records, size=KB)
    return done, cluster.cpu_seconds() - before

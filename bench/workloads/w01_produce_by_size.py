"""W1: produce by record size, in batches of 16 KB and 1 MB; and the same with ordinary clients."""

from __future__ import annotations

from collections.abc import Iterator

from bench.clients import librdkafka, producer_performance
from bench.loadgen import Load
from bench.measure import Measurement
from bench.registry import workload
from bench.run import OUT, Run
from bench.shapes import KB, MB, PARTITIONS, produce_file

SIZES = (10, 100, KB, 10 * KB, 100 * KB)
QUICK_SIZES = (100, KB)
BATCHES = {"16KB": (16 * KB, 8, 4), "1MB": (MB, 4, 2)}
"""Bytes, connections, requests in flight on each."""


@workload("W1", "Produce by record size")
def produce_by_size(run: Run) -> Iterator[Measurement]:
    """Records of 10 B to 100 KB, in batches of 16 KB and of 1 MB, acks=all, eight partitions; the raw generator
    in a closed loop, 300 MB and 1,000 MB a case; then Kafka's ProducerPerformance and librdkafka with a million
    records of 1 KB."""
    for batch_name, (batch_size, connections, inflight) in BATCHES.items():
        for size in run.choose(SIZES, QUICK_SIZES):
            topic = run.topic(PARTITIONS)
            file = produce_file(run, topic, record_size=size, batch_size=batch_size)
            volume = run.choose(1000, 200) * MB * (1 if batch_size == MB else 0.3)
            count = int(volume / max(batch_size, size))
            run.acknowledged = 0
            run.load(Load(file, connections, inflight, count=max(8, count // 10)))
            load = Load(file, connections, inflight, count=count, seconds=10)
            found = run.measure(f"{size_name(size)} in {batch_name}", load, OUT, quiet=batch_size == MB)
            yield found.with_check(run.lost(topic, PARTITIONS))
            run.drop_topics()
    yield from ordinary_clients(run)


def size_name(size: int) -> str:
    return f"{size // KB}KB" if size >= KB else f"{size}B"


def ordinary_clients(run: Run) -> Iterator[Measurement]:
    topic = run.topic(PARTITIONS)
    properties = {"acks": "all", "batch.size": "262144", "linger.ms": "5", "enable.idempotence": "false"}
    bootstrap = run.system.bootstrap
    records = run.choose(1_000_000, 200_000)
    yield run.measure_client(
        "ProducerPerformance 1KB",
        KB,
        lambda: producer_performance(
            run.libraries, bootstrap, topic, records=records, size=KB, properties=properties
        ),
    )
    run.drop_topics()
    other = run.topic(PARTITIONS)
    yield run.measure_client(
        "librdkafka 1KB", KB, lambda: librdkafka("produce", bootstrap, other, records=records, size=KB)
    )
    run.drop_topics()

"""F1: fetch by size of the answer, from the page cache. The goals name it; the list of workloads has no number
for it."""

from __future__ import annotations

from collections.abc import Iterator

from bench.asking import supports_api
from bench.clients import consumer_performance, librdkafka
from bench.loadgen import Load
from bench.measure import Measurement
from bench.registry import workload
from bench.requests import batch, fetch, produce, random_values, values_per_batch
from bench.run import IN, Run
from bench.shapes import KB, MB, PARTITIONS, produce_file

CASES = {"100B": (100, 100, 16, 1), "16KB": (KB, 16 * KB, 16, 1), "1MB": (KB, MB, 4, 1)}
"""Record size, batch size, connections, requests in flight on each."""
BATCHES_PER_PARTITION = 16
JOIN_GROUP = 11


@workload("F1", "Fetch by answer size")
def fetch_by_size(run: Run) -> Iterator[Measurement]:
    """One batch of 100 B, 16 KB or 1 MB per Fetch from the page cache, eight partitions; the raw generator in a
    closed loop without fetch sessions; then ConsumerPerformance where the broker has groups, and librdkafka."""
    for case, (record_size, batch_size, connections, inflight) in CASES.items():
        topic = run.topic(PARTITIONS)
        count = values_per_batch(record_size, batch_size)
        body = batch(random_values(count, record_size))
        write = run.requests(produce(topic, partition, body) for partition in range(PARTITIONS))
        run.load(Load(write, count=PARTITIONS * BATCHES_PER_PARTITION))
        places = [(p, n * count) for n in range(BATCHES_PER_PARTITION) for p in range(PARTITIONS)]
        file = run.requests(fetch(topic, partition, offset, len(body)) for partition, offset in places)
        run.load(Load(file, connections, inflight, seconds=run.choose(1.0, 0.3)))
        yield run.measure(case, Load(file, connections, inflight, seconds=run.choose(3.0, 1.0)), IN)
        run.drop_topics()
    yield from ordinary_clients(run)


def ordinary_clients(run: Run) -> Iterator[Measurement]:
    topic = run.topic(PARTITIONS)
    count = values_per_batch(KB, MB)
    batches = run.choose(800, 160)
    file = produce_file(run, topic, record_size=KB, batch_size=MB)
    run.load(Load(file, connections=2, inflight=2, count=batches))
    records, bootstrap = batches * count, run.system.bootstrap
    yield run.measure_client(
        "librdkafka consume",
        KB,
        lambda: librdkafka("consume", bootstrap, topic, records=records, partitions=PARTITIONS),
    )
    if supports_api(run.system.port, JOIN_GROUP):
        yield run.measure_client(
            "ConsumerPerformance",
            KB,
            lambda: consumer_performance(run.libraries, bootstrap, topic, records=records),
        )

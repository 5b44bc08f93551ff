"""W5: fan-out of one partition to many tail consumers."""

from __future__ import annotations

from collections.abc import Iterator

from bench.loadgen import Load
from bench.measure import Measurement, latencies, rates
from bench.registry import workload
from bench.run import Run
from bench.shapes import KB, produce_file, tail_file

CONSUMERS = (1, 10, 50)
RATE = 500


@workload("W5", "Fan-out to tail consumers")
def fan_out(run: Run) -> Iterator[Measurement]:
    """500 records of 1 KB a second into one partition, open loop, read at the tail by 1, 10 and 50 consumers
    that long-poll; latency from the time a record was due to its arrival, over all consumers; cost per
    delivered record."""
    for consumers in CONSUMERS:
        topic = run.topic(1)
        load = Load(
            produce_file(run, topic, record_size=KB, partitions=1),
            rate=RATE,
            seconds=run.choose(4.0, 1.0),
            fetch=tail_file(run, topic, 1),
            consumers=consumers,
            stamp=True,
        )
        result = run.load(load)
        figures = rates(
            seconds=result.seconds,
            cpu_seconds=result.server_cpu_seconds,
            records=result.records_delivered,
            size=result.payload_in,
        )
        figures |= latencies(result.delivery)
        yield Measurement(f"{consumers} consumers", {**figures, **run.memory()}, result.errors)
        run.drop_topics()

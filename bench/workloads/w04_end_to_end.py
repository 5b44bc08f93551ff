"""W4: from the producer to a consumer at the tail, at fixed rates, open loop."""

from __future__ import annotations

from collections.abc import Iterator

from bench import probes
from bench.asking import supports_api
from bench.clients import end_to_end_latency
from bench.loadgen import Load
from bench.measure import Measurement, latencies, rates
from bench.registry import workload
from bench.requests import batch, produce, random_values
from bench.run import Run, load_measurement
from bench.shapes import tail_file

PARTITIONS = 4
RECORD_SIZE = 100
OFFSET_COMMIT = 8
CASES = {"1k/s": (1_000, 1), "10k/s": (10_000, 1), "50k/s": (50_000, 10)}
"""Records a second, and records per request: at 50k/s a client lingers and sends ten at once."""


@workload("W4", "End-to-end latency at a fixed rate")
def end_to_end(run: Run) -> Iterator[Measurement]:
    """Records of 100 B are due at a fixed rate whatever the broker does (open loop), over four partitions with
    a tail consumer each. Latency: from the time a record was due to its arrival at the consumer. At 50k/s ten
    records go in one request. Then Kafka's EndToEndLatency, one record at a time."""
    for case, (rate, per_request) in CASES.items():
        for seconds in (run.choose(1.0, 0.5), run.choose(5.0, 1.5)):
            load = live_load(run, rate=rate, per_request=per_request, seconds=seconds)
            result = run.load(load)
        yield load_measurement(case, result, "", result.delivery, run.memory())
        run.drop_topics()
    if not supports_api(run.system.port, OFFSET_COMMIT):
        return  # the tool commits its offsets at the end
    topic, records = run.topic(1), run.choose(5_000, 2_000)
    probes.reset_peak_rss(run.system.pids)
    before = run.cpu_seconds()
    done = end_to_end_latency(run.libraries, run.system.bootstrap, topic, records=records, size=RECORD_SIZE)
    figures = rates(seconds=done.seconds, cpu_seconds=run.cpu_seconds() - before, records=done.records)
    yield Measurement("EndToEndLatency", {**figures, **latencies(done.latency), **run.memory()}, done.errors)


def live_load(run: Run, *, rate: int, per_request: int, seconds: float) -> Load:
    """A new topic with a stamped producer and a tail consumer per partition."""
    topic = run.topic(PARTITIONS)
    body = batch(random_values(per_request, RECORD_SIZE))
    return Load(
        run.requests(produce(topic, partition, body) for partition in range(PARTITIONS)),
        connections=PARTITIONS,
        rate=rate / per_request,
        seconds=seconds,
        fetch=tail_file(run, topic, PARTITIONS),
        consumers=PARTITIONS,
        stamp=True,
    )

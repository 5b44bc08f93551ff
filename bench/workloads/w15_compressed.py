"""W15: compressed batches pass through as they are."""

from __future__ import annotations

from collections.abc import Iterator

from bench.asking import exchange
from bench.loadgen import Load
from bench.measure import Measurement
from bench.registry import workload
from bench.requests import batch, fetch, produce, text_values, values_per_batch
from bench.run import OUT, Run
from bench.shapes import KB, MB, PARTITIONS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUICK_CODECS = ("lz4", "zstd")
CRC_START = 17


@workload("W15", "Compressed pass-through")
def compressed_pass_through(run: Run) -> Iterator[Measurement]:
    """Batches of 1 MB before compression, of records of 1 KB that look like log lines, with each codec. Cost is
    per request, and so per MB of what the application wrote; per GB it is of compressed bytes. Errors: a batch
    that does not come back byte for byte."""
    for codec in run.choose(CODECS, QUICK_CODECS):
        topic = run.topic(PARTITIONS)
        body = batch(text_values(values_per_batch(KB, MB), KB), codec)
        file = run.requests(produce(topic, partition, body) for partition in range(PARTITIONS))
        count = run.choose(2000, 400)
        run.load(Load(file, connections=4, inflight=2, count=count // 10))
        found = run.measure(codec, Load(file, connections=4, inflight=2, count=count, seconds=10), OUT)
        changed = int(body[CRC_START:] not in exchange(run.system.port, fetch(topic, 0, 0, 2 * MB)))
        ratio = round(MB / len(body), 2)
        yield found.with_check(changed, compression=ratio)
        run.drop_topics()

"""W6: a consumer reads an old, cold log while live traffic goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import probes
from bench.loadgen import Load, finish_load, start_load
from bench.measure import Measurement
from bench.registry import workload
from bench.requests import fetch
from bench.run import IN, Run, load_measurement
from bench.shapes import MB, fill
from bench.workloads.w04_end_to_end import live_load

LIVE_RATE = 5_000
COLD_SHARE = 0.8
"""The part of the log that must have come from the disk for the read to count as cold."""


@workload("W6", "Catch-up read of a cold log beside live traffic")
def catch_up(run: Run) -> Iterator[Measurement]:
    """A log that is not in the page cache is read from its beginning, 1 MB per Fetch, while 5,000 records a
    second go end to end as in W4. `catch-up` is the reader's rate; `live` the latency of the others meanwhile,
    and the broker's cost of both."""
    topic = run.topic(1)
    batches, per_batch, size = fill(run, topic, run.choose(2000, 400) * MB)
    reads = run.requests(fetch(topic, 0, index * per_batch, size) for index in range(batches))
    live = live_load(run, rate=LIVE_RATE, per_request=1, seconds=run.choose(5.0, 2.0))
    dropped = probes.forget_file_cache(run.system.data_dir)
    pids = run.system.pids
    probes.reset_peak_rss(pids)
    read_before = probes.disk_read_bytes(pids)
    background = start_load(run.system.port, live, pids)
    time.sleep(0.5)
    reader = run.load(Load(reads, connections=2, inflight=1, count=batches))
    result = finish_load(background)
    memory = run.memory()
    read_mb = (probes.disk_read_bytes(pids) - read_before) // MB
    found = load_measurement("catch-up", reader, IN, reader.round_trip, memory)
    cold = read_mb >= COLD_SHARE * batches * size / MB
    doubt = {} if cold else {"unverified": f"only {read_mb} MB came from the disk"}
    yield found.with_check(0, dropped_mb=dropped // MB, read_mb=read_mb, **doubt)
    yield load_measurement("live", result, "", result.delivery, memory)

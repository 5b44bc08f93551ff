"""G3: what a fetch at a random offset costs as the log grows. It must cost the same (R-LOG-2)."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench import probes
from bench.loadgen import Load
from bench.measure import Measurement, rates
from bench.registry import workload
from bench.requests import batch, fetch, produce, random_values, values_per_batch
from bench.run import Run, load_measurement
from bench.shapes import KB, MB
from bench.warmup import warm_up

SIZES_MB = (10, 100, 1_000, 10_000)
QUICK_SIZES_MB = (10, 100, 500)
BATCH_SIZE = 64 * KB
READS = 20_000


@workload("G3", "Growth: log size", own_system=True, max_rounds=3, in_quick=False)
def growth_with_log_size(run: Run) -> Iterator[Measurement]:
    """One partition grows from 10 MB to 10 GB in batches of 64 KB; after each step one batch is fetched at each
    of many random offsets, from the page cache: cost of a fetch and its latency. `bare read` is what it costs
    this process to read as many bytes at random places of the same files and to send them over loopback, without
    any broker: the memory's share of the growth."""
    run.system.start()
    warm_up(run, small_only=True)
    topic = run.topic(1)
    count = values_per_batch(KB, BATCH_SIZE)
    body = batch(random_values(count, KB))
    write = run.requests([produce(topic, 0, body)])
    batches = 0
    for size_mb in run.choose(SIZES_MB, QUICK_SIZES_MB):
        more = size_mb * MB // len(body) - batches
        filled = run.load(Load(write, connections=2, inflight=4, count=more))
        batches += more
        source = random.Random(size_mb)
        offsets = (source.randrange(batches * count) for _ in range(READS))
        reads = run.requests(fetch(topic, 0, offset, len(body)) for offset in offsets)
        run.load(Load(reads, connections=4, inflight=1, seconds=0.5))
        result = run.load(Load(reads, connections=4, inflight=1, seconds=run.choose(2.0, 0.7)))
        memory = {"x": size_mb / 1000, "rss_mb": probes.rss_mb(run.system.pids)}
        found = load_measurement(f"fetch in {size_mb}MB", result, "in", result.round_trip, memory)
        yield Measurement(found.case, found.figures, found.errors + filled.errors, found.notes)
        [directory] = run.partition_directories(topic)
        yield bare_reads(f"bare read in {size_mb}MB", directory, len(body), source)


def bare_reads(case: str, directory: Path, size: int, source: random.Random) -> Measurement:
    buffer = bytearray(size)
    with contextlib.ExitStack() as cleanup:
        connection = cleanup.enter_context(drained_connection())
        places = [
            (file.fileno(), number * size)
            for file in [cleanup.enter_context(path.open("rb")) for path in directory.glob("*.log")]
            for number in range(os.fstat(file.fileno()).st_size // size)
        ]
        reads = source.choices(places, k=READS)
        missing = 0
        started, cpu_started = time.perf_counter(), time.process_time()
        for descriptor, position in reads:
            missing += os.preadv(descriptor, (buffer,), position) != size
            connection.sendall(buffer)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return Measurement(case, rates(seconds=seconds, cpu_seconds=cpu_seconds, requests=READS), missing)


@contextlib.contextmanager
def drained_connection() -> Iterator[socket.socket]:
    """Over loopback to a process that reads and forgets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with theirs:
        reader = subprocess.Popen(["cat"], stdin=theirs, stdout=subprocess.DEVNULL)
    try:
        with ours:
            yield ours
    finally:
        reader.wait(30)

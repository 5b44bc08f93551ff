"""G3: what a fetch at a random offset costs as the log grows. It must cost the same (R-LOG-2)."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import probes
from bench.loadgen import Load
from bench.measure import Figures, Measurement, rates
from bench.registry import workload
from bench.requests import batch, fetch, produce, random_values, values_per_batch
from bench.run import Run, load_measurement
from bench.shapes import KB, MB
from bench.warmup import warm_up

SIZES_MB = (10, 100, 1_000, 10_000)
QUICK_SIZES_MB = (10, 100, 500)
BATCH_SIZE = 64 * KB
OFFSETS = 20_000
BARE_READS = 4_000
ROTATIONS = 7
"""On a shared machine memory may be twice as slow a minute later: all sizes must meet every such minute."""


@dataclass(frozen=True, slots=True)
class GrownLog:
    size_mb: int
    directory: Path
    reads: Path
    """Requests for one batch at random offsets."""
    batch_bytes: int
    figures: Figures
    """The size, and the broker's memory after the log was written and read from."""

    def fetches(self, run: Run, seconds: float) -> Measurement:
        result = run.load(Load(self.reads, connections=4, inflight=1, seconds=seconds))
        case = f"fetch in {self.size_mb}MB"
        return load_measurement(case, result, "in", result.round_trip, self.figures)

    def bare_reads(self) -> Measurement:
        """What a fetch costs without a broker: read at a random place, and send."""
        buffer = bytearray(self.batch_bytes)
        with contextlib.ExitStack() as cleanup:
            connection = cleanup.enter_context(drained_connection())
            files = [cleanup.enter_context(path.open("rb")) for path in self.directory.glob("*.log")]
            places = [
                (file.fileno(), number * self.batch_bytes)
                for file in files
                for number in range(os.fstat(file.fileno()).st_size // self.batch_bytes)
            ]
            missing = 0
            started, cpu_started = time.perf_counter(), time.process_time()
            for descriptor, position in random.Random(1).choices(places, k=BARE_READS):
                missing += os.preadv(descriptor, (buffer,), position) != self.batch_bytes
                connection.sendall(buffer)
            seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        figures = rates(seconds=seconds, cpu_seconds=cpu_seconds, requests=BARE_READS)
        return Measurement(f"bare read in {self.size_mb}MB", {**figures, "x": self.figures["x"]}, missing)


@workload("G3", "Growth: log size", own_system=True, max_rounds=3, in_quick=False)
def growth_with_log_size(run: Run) -> Iterator[Measurement]:
    """Logs of one partition of 10 MB to 10 GB, in batches of 64 KB. One batch is fetched at each of many random
    offsets, from the page cache: cost of a fetch and its latency. `bare read` is what it costs this process to
    read as many bytes at random places of the same files and to send them over loopback, without any broker: the
    memory's share of the growth. All sizes take turns, seven times; the median by cost counts.
    """
    run.system.start()
    warm_up(run, small_only=True)
    logs = [grown_log(run, size_mb) for size_mb in run.choose(SIZES_MB, QUICK_SIZES_MB)]
    found: dict[str, list[Measurement]] = {}
    for _ in range(ROTATIONS):
        for log in logs:
            for measured in (log.fetches(run, run.choose(0.7, 0.2)), log.bare_reads()):
                found.setdefault(measured.case, []).append(measured)
    for measurements in found.values():
        yield middle(measurements)


def middle(measurements: Sequence[Measurement]) -> Measurement:
    """The one of median cost, with the errors of all."""
    found = sorted(measurements, key=lambda one: one.figures["cpu_us_per_request"])[len(measurements) // 2]
    return found.with_check(sum(one.errors for one in measurements) - found.errors)


def grown_log(run: Run, size_mb: int) -> GrownLog:
    topic = run.topic(1)
    count = values_per_batch(KB, BATCH_SIZE)
    body = batch(random_values(count, KB))
    batches = size_mb * MB // len(body)
    filled = run.load(Load(run.requests([produce(topic, 0, body)]), connections=2, inflight=4, count=batches))
    if filled.errors:
        raise ValueError(f"{filled.errors} of {batches} batches were not stored")
    source = random.Random(size_mb)
    offsets = (source.randrange(batches * count) for _ in range(OFFSETS))
    reads = run.requests(fetch(topic, 0, offset, len(body)) for offset in offsets)
    run.load(Load(reads, connections=4, inflight=1, seconds=run.choose(1.0, 0.3)))
    figures = {"x": size_mb / 1000, "rss_mb": probes.rss_mb(run.system.pids)}
    [directory] = run.partition_directories(topic)
    return GrownLog(size_mb, directory, reads, len(body), figures)


@contextlib.contextmanager
def drained_connection() -> Iterator[socket.socket]:
    """Over loopback to a process that reads and forgets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with theirs:
        reader = subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
    try:
        with ours:
            yield ours
    finally:
        reader.wait(30)

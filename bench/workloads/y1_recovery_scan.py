"""R1: how fast recovery reads and checks a log. Headrace alone: the code that runs at a start after kill -9."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Measurement, rates
from bench.registry import workload
from bench.requests import batch, random_values, values_per_batch
from bench.run import Run
from bench.shapes import KB, MB
from headrace.env.real import RealDisk
from headrace.storage.scan import Expectation, scan_verified

CASES = {
    "1MB batches": (KB, MB, 500 * MB),
    "16KB batches": (KB, 16 * KB, 200 * MB),
    "1 record of 100B": (100, 0, 20 * MB),
}
"""Record size, batch size (0: one record), bytes of the segment."""


@workload("R1", "Recovery scan", own_system=True, max_rounds=3, only=("headrace",))
def recovery_scan(run: Run) -> Iterator[Measurement]:
    """A segment in the page cache is read, and each batch checked (length, CRC, offsets), by the function that
    recovery calls, in this process. Errors: batches that the scan did not reach."""
    for case, (record_size, batch_size, volume) in CASES.items():
        path, batches = write_segment(run, record_size, batch_size, volume // run.choose(1, 5))
        yield scan_case(case, path, batches)
        path.unlink()


def write_segment(run: Run, record_size: int, batch_size: int, volume: int) -> tuple[Path, int]:
    """A file of equal batches at rising offsets: an offset is outside the CRC."""
    count = values_per_batch(record_size, batch_size) if batch_size else 1
    body = batch(random_values(count, record_size))
    batches = volume // len(body)
    path = run.system.server.root / "segment"
    with path.open("wb") as out:
        for number in range(batches):
            out.write((number * count).to_bytes(8, "big") + body[8:])
    return path, batches


def scan_case(case: str, path: Path, batches: int) -> Measurement:
    size, found = path.stat().st_size, 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        started, cpu_started = time.perf_counter(), time.process_time()
        for _ in scan_verified(RealDisk(), descriptor, 0, size, Expectation(0, -1, gaps_allowed=False)):
            found += 1
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    finally:
        os.close(descriptor)
    figures = rates(seconds=seconds, cpu_seconds=cpu_seconds, size=size)
    return Measurement(case, {**figures, "batches_per_s": found / seconds}, batches - found)

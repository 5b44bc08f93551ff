"""R2: how fast a log is compacted. Headrace alone: the code of its cleaning process."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Measurement, rates
from bench.registry import workload
from bench.run import Run
from bench.shapes import KB, MB
from headrace.env.real import RealDisk
from headrace.records.builder import NewRecord, build_batch
from headrace.storage.compaction.messages import CleaningReport, CleaningRequest, SegmentToClean
from headrace.storage.compaction.worker import Usage, clean

PER_BATCH = 100
KEYS = 50_000
MAP_BYTES = 128 * MB
NOW_MS = 1_700_000_000_000
CASES = {"100B values": 100, "1KB values": KB}


@workload("R2", "Compaction", own_system=True, max_rounds=3, only=("headrace",))
def compaction(run: Run) -> Iterator[Measurement]:
    """A segment of records with 50,000 keys in random order, 100 to a batch, is compacted without a limit of the
    rate by the function that the cleaning process runs, in this process; records and MB are those read. Errors:
    keys that were lost or kept twice."""
    for case, size in CASES.items():
        yield clean_case(run, case, size, run.choose(400_000, 100_000))


def clean_case(run: Run, case: str, value_size: int, records: int) -> Measurement:
    directory = run.system.server.root / f"values-{value_size}"
    directory.mkdir()
    size, keys = write_segment(directory / f"{0:020}.log", value_size, records)
    request = CleaningRequest(
        directory=str(directory),
        sources=(SegmentToClean(0, size, records),),
        dirty_offset=0,
        upper_offset=records,
        now_ms=NOW_MS,
        delete_retention_ms=86_400_000,
        segment_bytes=1024 * MB,
        segment_index_bytes=10 * MB,
        index_interval_bytes=4 * KB,
        decompressed_bytes=64 * MB,
        memory_bytes=MAP_BYTES,
        bytes_per_second=0.0,
    )
    cpu_started = time.process_time()
    *_, report = clean(request, RealDisk(), lambda size: None, Usage(time.monotonic, peak_memory))
    cpu_seconds = time.process_time() - cpu_started
    assert isinstance(report, CleaningReport)
    figures = rates(seconds=report.seconds, cpu_seconds=cpu_seconds, records=report.records_in, size=size)
    kept = {"mb_left": report.bytes_out // MB, "keys": report.keys}
    return Measurement(case, figures, abs(report.records_out - keys), kept)


def write_segment(path: Path, value_size: int, records: int) -> tuple[int, int]:
    """Returns its bytes, and how many keys there are."""
    source = random.Random(value_size)
    value, keys = source.randbytes(value_size), set[bytes]()
    with path.open("wb") as out:
        for start in range(0, records, PER_BATCH):
            chosen = [b"key-%d" % source.randrange(KEYS) for _ in range(PER_BATCH)]
            keys.update(chosen)
            body = build_batch([NewRecord(value, key, NOW_MS, ()) for key in chosen])
            out.write(start.to_bytes(8, "big") + bytes(body[8:]))
        return out.tell(), len(keys)


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KB

"""What it costs to look into every record of a batch: `python -m bench.record_validation`.

CPU time of the append of a log (in memory file system where /dev/shm is one), with and without
`headrace.record.validation.enable`, by the shape of the batch. The lowest of several rounds counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.env.real import real_env
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.records.compression import Codec
from headrace.storage.loading import create_log
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.resources import StorageResources

ROUNDS = 7
BATCHES = 20
SHAPES = (
    (1000, 100, Codec.NONE),
    (1000, 1000, Codec.NONE),
    (1000, 100, Codec.LZ4),
    (1000, 100, Codec.ZSTD),
    (1, 100, Codec.NONE),
)
"""Records of a batch, bytes of a value, codec."""
MEMORY = Path("/dev/shm")


@contextmanager
def fresh_log(config: LogConfig) -> Iterator[Log]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place:
        resources = StorageResources.create(real_env())
        log = create_log(f"{place}/t-0", TopicPartition("t", 0), TopicId(bytes(16)), config, resources)
        yield log
        log.abandon()


def cpu_s_per_batch(config: LogConfig, batch: bytes) -> float:
    lowest = float("inf")
    for _ in range(ROUNDS):
        with fresh_log(config) as log:
            copies = [bytearray(batch) for _ in range(BATCHES)]
            began = time.process_time()
            for copy in copies:
                log.append_as_leader(memoryview(copy), 0)
            lowest = min(lowest, time.process_time() - began)
    return lowest / BATCHES


def main() -> None:
    print("| records x value, codec | append, µs per batch | validated, µs per batch | more per record, µs |")
    print("|---|---|---|---|")
    for count, size, codec in SHAPES:
        now = time.time_ns() // 1_000_000
        records = [NewRecord((b"%d" % n) * (size // len(b"%d" % n)), b"key-%d" % n, now) for n in range(count)]
        batch = bytes(build_batch(records, codec=codec))
        plain = cpu_s_per_batch(LogConfig(), batch) * 1e6
        checked = cpu_s_per_batch(LogConfig(headrace_record_validation_enable=True), batch) * 1e6
        name = f"{count:,} x {size} B, {codec.name.lower()}"
        print(f"| {name} | {plain:.0f} | {checked:.0f} | {(checked - plain) / count:.2f} |")


if __name__ == "__main__":
    main()

"""Request shapes that several workloads share."""

from __future__ import annotations

from pathlib import Path

from bench.loadgen import Load
from bench.requests import batch, fetch, produce, random_values, values_per_batch
from bench.run import Run

KB = 1024
MB = 1024 * 1024
PARTITIONS = 8


def produce_file(
    run: Run, topic: str, *, record_size: int, batch_size: int = 0, partitions: int = PARTITIONS
) -> Path:
    """One Produce per partition; of one record where no batch size is given."""
    count = values_per_batch(record_size, batch_size) if batch_size else 1
    body = batch(random_values(count, record_size))
    return run.requests(produce(topic, partition, body) for partition in range(partitions))


def tail_file(run: Run, topic: str, partitions: int) -> Path:
    """One Fetch per partition, from the beginning, in a session, for tail consumers."""
    return run.requests(fetch(topic, partition, 0, MB, session=True) for partition in range(partitions))


def fill(run: Run, topic: str, volume: int) -> tuple[int, int, int]:
    """Fills partition 0 with batches of 1 MB. Returns batches, records per batch, and bytes per batch."""
    count = values_per_batch(KB, MB)
    body = batch(random_values(count, KB))
    batches = max(1, volume // len(body))
    file = run.requests([produce(topic, 0, body)])
    result = run.load(Load(file, connections=2, inflight=2, count=batches))
    if result.errors or result.requests != batches:
        raise ConnectionError(
            f"filling {topic} gave {result.errors} errors, {result.requests} of {batches} batches"
        )
    return batches, count, len(body)

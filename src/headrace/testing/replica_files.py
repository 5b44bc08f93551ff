"""The files of a partition's replicas, compared byte for byte: of brokers that run, were killed or were stopped.

A log that is being written ends anywhere, so replicas are compared by whole batches below an offset: the high
watermark of the leader for replicas in sync, or the smallest that the replicas themselves have noted. Below its
own high watermark no replica may differ from another, whatever was done to it (topics without compaction).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headrace.testing.raw_client import batches_in

HIGH_WATERMARKS = "replication-offset-checkpoint"
BATCH_OVERHEAD = 12


def replica_bytes(directory: Path, below: int | None = None) -> bytes:
    """The batches that end below an offset, or every byte of the log."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    if below is None:
        return data
    end = 0
    for batch in batches_in(data):
        if batch.base_offset + batch.last_offset_delta >= below:
            break
        end += batch.length + BATCH_OVERHEAD
    return data[:end]


def noted_high_watermark(directory: Path) -> int:
    """As the broker last wrote it to disk; 0 if it has not."""
    path = directory.parent / HIGH_WATERMARKS
    if not path.exists():
        return 0
    for line in path.read_text().splitlines()[2:]:
        topic, partition, offset = line.rsplit(" ", 2)
        if f"{topic}-{partition}" == directory.name:
            return int(offset)
    return 0


def differ(directories: Iterable[Path], below: int | None = None) -> bool:
    """Whether the replicas with these partition directories are not the same."""
    return len({replica_bytes(directory, below) for directory in directories}) > 1


def differ_below_noted(directories: Iterable[Path]) -> bool:
    """Below the smallest high watermark that a replica has noted."""
    replicas = list(directories)
    return differ(replicas, min(map(noted_high_watermark, replicas)))

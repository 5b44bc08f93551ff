"""Archives for tests: made from a real broker, read back by another reader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from headrace.spark.archive import manifest as m
from headrace.spark.archive.archiving import ArchiveRun, RunProgress
from headrace.spark.archive.asking import cluster_id
from headrace.spark.archive.store import ArchiveStore
from headrace.spark.client.cluster import BlockingCluster, ClusterSettings

SMALL_FILES = 20_000


def connect(bootstrap: str) -> BlockingCluster:
    return BlockingCluster(ClusterSettings(bootstrap))


def make_archive(
    folder: Path | str, bootstrap: str, topics: Sequence[str], file_bytes: int = SMALL_FILES, pattern: str = ""
) -> ArchiveStore:
    store = ArchiveStore.open(str(folder))
    wanted = m.Description(
        "some-id", "2026-11-16", cluster_id(connect(bootstrap)), tuple(topics), pattern, file_bytes, "zstd"
    )
    m.create(store, wanted)
    return store


def archived(store: ArchiveStore, bootstrap: str, *, accept_loss: bool = False) -> RunProgress:
    """After a run, which nothing was wrong with."""
    progress = ArchiveRun(store, connect(bootstrap), accept_loss=accept_loss).run()
    assert not progress.problems, progress.problems
    return progress


def read_folder(folder: Path) -> list[dict[str, Any]]:
    """As a reader that knows of Parquet and nothing of us, in the order of partitions and offsets."""
    if not list(folder.glob("topic=*")):
        return []
    rows = ds.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))

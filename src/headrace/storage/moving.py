"""A log moves from one data directory of the broker to another (KIP-113), and a crash leaves it in one of them.

    .future/topic-N     in the new directory: the copy while it is made; removed at the next start
    .moved/topic-N      in the old directory: the original, from the swap until the copy is on the device

The swap: 1. topic-N becomes .moved/topic-N, 2. .future/topic-N becomes topic-N, 3. when the copy is synced,
.moved/topic-N goes. After a crash before 2 there is no topic-N, and the original takes its name back.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.env import Disk
from headrace.model.topics import TopicPartition

FUTURE = ".future"
MOVED = ".moved"


def future_path(directory: str, partition: TopicPartition) -> str:
    return f"{directory}/{FUTURE}/{partition}"


def moved_path(directory: str, partition: TopicPartition) -> str:
    return f"{directory}/{MOVED}/{partition}"


def finish_moves(disk: Disk, directories: Sequence[str], some_missing: bool) -> None:
    """At start, before any log is loaded: settle where each log is, and drop what was only begun.

    While a directory is missing, a log that was moved may be there: then the original keeps waiting.
    """
    present = {name for directory in directories for name in disk.list_directory(directory)}
    for directory in directories:
        if disk.exists(f"{directory}/{FUTURE}"):
            disk.remove_tree(f"{directory}/{FUTURE}")
        moved = f"{directory}/{MOVED}"
        if not disk.exists(moved):
            continue
        for name in disk.list_directory(moved):
            if name in present:
                disk.remove_tree(f"{moved}/{name}")
            elif not some_missing:
                disk.rename(f"{moved}/{name}", f"{directory}/{name}")
                disk.fsync_directory(directory)


def swap(disk: Disk, old: str, new: str, partition: TopicPartition) -> None:
    """Steps 1 and 2, between data directories."""
    disk.make_directory(f"{old}/{MOVED}")
    disk.rename(f"{old}/{partition}", moved_path(old, partition))
    try:
        disk.rename(future_path(new, partition), f"{new}/{partition}")
    except OSError:
        disk.rename(moved_path(old, partition), f"{old}/{partition}")
        raise

"""A log moves from one data directory of the broker to another (KIP-113), and a crash leaves it in one of them.

    .future/topic-N     in the new directory: the copy while it is made; removed at the next start
    .moved/topic-N      in the old directory: the original, from the swap until the copy is on the device

The swap: 1. topic-N becomes .moved/topic-N, 2. .future/topic-N becomes topic-N, 3. when the copy is synced,
.moved/topic-N goes. After a crash before 2 there is no topic-N, and the original takes its name back. If the power
failed between 2 and 3, the copy may have lost its end: then the longer one is used, and the other set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.env import Disk
from headrace.env.env import EntryKind
from headrace.model.topics import TopicPartition
from headrace.storage.segment import LOG
from headrace.storage.strays import Strays

FUTURE = ".future"
MOVED = ".moved"


def future_path(directory: str, partition: TopicPartition) -> str:
    return f"{directory}/{FUTURE}/{partition}"


def moved_path(directory: str, partition: TopicPartition) -> str:
    return f"{directory}/{MOVED}/{partition}"


class Place(NamedTuple):
    """A data directory, as far as moves concern it."""

    path: str
    strays: Strays
    same_boot: bool
    """Nothing that was written to it can have been lost with the page cache."""


def finish_moves(disk: Disk, places: Sequence[Place], some_missing: bool) -> None:
    """At start, before any log is loaded: settle where each log is, and drop what was only begun.

    While a directory is missing, a log that was moved may be there: then the original keeps waiting.
    """
    copies = {
        name: place
        for place in places
        for name, kind in disk.list_entries(place.path).items()
        if kind is EntryKind.DIRECTORY
    }
    for place in places:
        directory = place.path
        if disk.exists(f"{directory}/{FUTURE}"):
            disk.remove_tree(f"{directory}/{FUTURE}")
        moved = f"{directory}/{MOVED}"
        if not disk.exists(moved):
            continue
        for name in disk.list_directory(moved):
            if name in copies and _is_original_needed(disk, place, copies[name], name):
                del copies[name]
            if name in copies:
                continue
            if not some_missing:
                disk.rename(f"{moved}/{name}", f"{directory}/{name}")
                disk.fsync_directory(directory)


def _is_original_needed(disk: Disk, old: Place, new: Place, name: str) -> bool:
    """Whether the original must take its name back, from a copy that is shorter. Else it is out of the way."""
    original, copy = f"{old.path}/{MOVED}/{name}", f"{new.path}/{name}"
    if old.same_boot:
        disk.remove_tree(original)
        return False
    if _log_bytes(disk, copy) < _log_bytes(disk, original):
        new.strays.set_aside(copy, "the machine went down when this log was moved, and the copy is not whole")
        return True
    why = "the machine went down when this log was moved, and the copy is in use: this is the original"
    old.strays.set_aside(original, why, beside=f"{old.path}/{name}")
    return False


def _log_bytes(disk: Disk, directory: str) -> int:
    names = [name for name, kind in disk.list_entries(directory).items() if kind is EntryKind.FILE]
    return sum(disk.file_size(f"{directory}/{name}") for name in names if name.endswith(LOG))


def swap(disk: Disk, old: str, new: str, partition: TopicPartition) -> None:
    """Steps 1 and 2, between data directories."""
    disk.make_directory(f"{old}/{MOVED}")
    disk.rename(f"{old}/{partition}", moved_path(old, partition))
    try:
        disk.rename(future_path(new, partition), f"{new}/{partition}")
    except OSError:
        disk.rename(moved_path(old, partition), f"{old}/{partition}")
        raise

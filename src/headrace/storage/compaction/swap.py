"""A compacted segment takes the place of those it was made from, so that a crash at any moment loses nothing.

    1. X.log.cleaned, X.index.cleaned ...   the worker's files, complete and synced. A start removes them.
    2. X.index.swap ..., last X.log.swap    the broker has decided. The directory is synced.
    3. the old files get `.deleted`         removed some time later; who reads from them goes on reading
    4. X.index ..., last X.log              the new segment is in its place

From the last step of 2 to the last step of 4 there is an X.log.swap, and a start then finishes: it removes what
the new segment stands for, which is everything from its base offset to its end, and does step 4. The last batch of
a compacted segment always stays, if only as a header, so that its end is in its bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from headrace.env import Disk
from headrace.env.env import READ_ONLY
from headrace.model.errors import KafkaError
from headrace.storage.compaction.output import CLEANED
from headrace.storage.files import OpenFile
from headrace.storage.resources import StorageResources
from headrace.storage.scan import scan_headers
from headrace.storage.segment import (
    DELETED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Segment,
)
from headrace.storage.segment_index import load_index

logger = logging.getLogger(__name__)

SWAP = ".swap"
_LOG_LAST = (INDEX, TIME_INDEX, TRANSACTION_INDEX, LOG)


class Cleaning:
    """A cleaning of one log under way. Whoever cuts or gives up the log aborts it: nothing comes of it then."""

    __slots__ = ("_on_abort", "_resources", "is_aborted", "offered")

    def __init__(self, resources: StorageResources, on_abort: Callable[[], None]) -> None:
        self._resources = resources
        self._on_abort = on_abort
        self.is_aborted = False
        self.offered: Segment | None = None
        """The new segment that is between steps 2 and 3: only a decision that a start would act on."""

    def abort(self) -> None:
        if self.is_aborted:
            return
        self.is_aborted = True
        if self.offered is not None:
            withdraw(self._resources, self.offered)
        self._on_abort()


def offer(disk: Disk, segment: Segment) -> None:
    """Step 2, without the sync."""
    _rename_all(disk, segment, CLEANED, SWAP)


def take_place(resources: StorageResources, delay_ms: int, old: Sequence[Segment], new: Segment) -> None:
    """Steps 3 and 4. The state of the producers at the base offset is what it was, so that snapshot stays."""
    for segment in old:
        is_base = segment.base_offset == new.base_offset
        segment.bury(resources, delay_ms, SEGMENT_SUFFIXES if is_base else (*SEGMENT_SUFFIXES, SNAPSHOT))
    settle(resources.env.disk, new)


def settle(disk: Disk, segment: Segment) -> None:
    """Step 4."""
    _rename_all(disk, segment, SWAP, "")


def _rename_all(disk: Disk, segment: Segment, old: str, new: str) -> None:
    for suffix in _LOG_LAST:
        path = segment.path(suffix)
        try:
            disk.rename(path + old, path + new)
        except FileNotFoundError:
            # A segment may have no transactions, and a start may find a part of the work done.
            if suffix == LOG:
                raise


def withdraw(resources: StorageResources, segment: Segment) -> None:
    """Take an offer back: the log first, for without it the others mean nothing."""
    for suffix in reversed(_LOG_LAST):
        path = segment.path(suffix) + SWAP
        try:
            resources.env.disk.rename(path, path + DELETED)
        except FileNotFoundError:
            continue
        resources.graveyard.add_file(path + DELETED, 0)


def discard_cleaned(disk: Disk, directory: str) -> None:
    """Blocking. Remove the files of a cleaning that came to nothing."""
    try:
        for name in disk.list_directory(directory):
            if name.endswith(CLEANED):
                disk.unlink(f"{directory}/{name}")
    except FileNotFoundError:
        # The log was deleted meanwhile, and its directory has another name.
        return


def finish_swaps(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """At start: finish what was decided, forget what was not. The names of the files that are there then."""
    if not any(name.endswith(SWAP) for name in names):
        return names
    suffix = LOG + SWAP
    for stem in sorted(name.removesuffix(suffix) for name in names if name.endswith(suffix)):
        segment = Segment(directory, int(stem), disk.file_size(f"{directory}/{stem}{suffix}"))
        end_offset = _end_offset(disk, segment)
        logger.info("%s: finishing the swap of segment %d, up to offset %d", directory, int(stem), end_offset)
        for name in names:
            if _is_replaced(name, segment.base_offset, end_offset):
                disk.unlink(f"{directory}/{name}")
        settle(disk, segment)
    for name in disk.list_directory(directory):
        if name.endswith(SWAP):
            disk.unlink(f"{directory}/{name}")
    disk.fsync_directory(directory)
    return disk.list_directory(directory)


def _is_replaced(name: str, base_offset: int, end_offset: int) -> bool:
    stem, _, suffix = name.partition(".")
    if not (stem.isascii() and stem.isdigit()):
        return False
    if "." + suffix == SNAPSHOT:
        # As in `take_place`.
        return base_offset < int(stem) < end_offset
    return "." + suffix in _LOG_LAST and base_offset <= int(stem) < max(end_offset, base_offset + 1)


def _end_offset(disk: Disk, segment: Segment) -> int:
    """After the last batch of a `.log.swap` file; its index, if it is there, saves reading all of it."""
    file = OpenFile(disk, segment.path(LOG) + SWAP, READ_ONLY)
    index = load_index(disk, segment.path(INDEX) + SWAP, segment.path(TIME_INDEX) + SWAP, segment.size)
    end_offset = segment.base_offset
    try:
        for _, header in scan_headers(disk, file.fd, index.last_position if index else 0, segment.size):
            end_offset = header.next_offset
    except KafkaError:
        logger.exception("%s is damaged after offset %d", segment.path(LOG) + SWAP, end_offset)
    return end_offset

"""A compacted segment takes the place of those it was made from, so that a crash at any moment loses nothing.

    1. X.log.cleaned, X.index.cleaned ...   the worker's files, complete and synced. A start removes them.
    2. X.index.swap ..., last X.log.swap    the broker has decided. The directory is synced.
    3. the old files get `.deleted`         removed some time later; open readers keep reading them
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
from headrace.storage.compaction.output import CLEANED
from headrace.storage.files import OpenFile
from headrace.storage.resources import StorageResources
from headrace.storage.scan import Expectation, scan_verified
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

logger = logging.getLogger(__name__)

SWAP = ".swap"
_LOG_LAST = (INDEX, TIME_INDEX, TRANSACTION_INDEX, LOG)


class Cleaning:
    """A running compaction of one log. Truncating or closing the log aborts it, and it has no effect."""

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
    new.has_aborted = resources.env.disk.exists(new.path(TRANSACTION_INDEX))


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


def finish_swaps(resources: StorageResources, directory: str, names: list[str]) -> list[str]:
    """At start: finish what was decided, forget what was not. The names of the files that are there then.

    A new segment that is not whole takes nobody's place: it is set aside.
    """
    if not any(name.endswith(SWAP) for name in names):
        return names
    disk, known = resources.env.disk, set(names)
    suffix = LOG + SWAP
    for stem in sorted(name.removesuffix(suffix) for name in known if name.endswith(suffix)):
        segment = Segment(directory, int(stem), disk.file_size(f"{directory}/{stem}{suffix}"))
        end_offset = _end_offset(disk, segment)
        if end_offset is None:
            why = "this compacted segment is empty or damaged, and takes the place of none"
            resources.strays.set_aside(f"{directory}/{stem}{suffix}", why)
            known.remove(stem + suffix)
            continue
        logger.info("%s: finishing the swap of segment %d, up to offset %d", directory, int(stem), end_offset)
        replaced = {name for name in known if _is_replaced(name, segment.base_offset, end_offset)}
        for name in replaced:
            disk.unlink(f"{directory}/{name}")
        settle(disk, segment)
        settled = {name for name in known if name.startswith(stem) and name.endswith(SWAP)}
        known = known - replaced - settled | {name.removesuffix(SWAP) for name in settled}
    for name in known:
        if name.endswith(SWAP):
            disk.unlink(f"{directory}/{name}")
    disk.fsync_directory(directory)
    return [name for name in known if not name.endswith(SWAP)]


def _is_replaced(name: str, base_offset: int, end_offset: int) -> bool:
    stem, _, suffix = name.partition(".")
    if not (stem.isascii() and stem.isdigit()):
        return False
    if "." + suffix == SNAPSHOT:
        # As in `take_place`.
        return base_offset < int(stem) < end_offset
    return "." + suffix in _LOG_LAST and base_offset <= int(stem) < max(end_offset, base_offset + 1)


def _end_offset(disk: Disk, segment: Segment) -> int | None:
    """After the last batch of a `.log.swap` file; None if it is not whole."""
    file = OpenFile(disk, segment.path(LOG) + SWAP, READ_ONLY)
    expected = Expectation(segment.base_offset, -1, gaps_allowed=True)
    position = 0
    for start, _, batch in scan_verified(disk, file.fd, 0, segment.size, expected):
        position = start + len(batch)
    return expected.next_offset if position == segment.size > 0 else None

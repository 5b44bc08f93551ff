"""The segments of a log in order, the last one active: finding a batch, beginning, cutting, dropping, replacing.

Rules:
- It knows files, not meaning: which offsets are valid, and why something is cut, is the log's business.
- Failures of the disk are raised as they are; the log judges them.
- A thread may go over the segments meanwhile (a flush, a search by time). So whatever leaves the list leaves it
  before its files do, and the list itself is replaced, not changed; only a new active segment is appended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from headrace.env.env import CREATE, READ_WRITE, TRUNCATE
from headrace.records.batch import HEADER_SIZE
from headrace.storage.compaction.swap import take_place
from headrace.storage.files import FileRange, OpenFile
from headrace.storage.resources import StorageResources
from headrace.storage.scan import BatchPlace
from headrace.storage.segment import LOG, OWN_FILES, Segment
from headrace.storage.transaction_index import AbortedTransaction

MAX_EMPTY_BATCHES = 1000
"""How many of them one read skips."""
TEMPORARY = ".tmp"
_BASE_OFFSET = attrgetter("base_offset")


class SegmentList:
    __slots__ = ("_all", "_resources", "active", "has_aborted")

    def __init__(self, segments: list[Segment], resources: StorageResources) -> None:
        """`segments` in order and the last one open."""
        self._all = segments
        self._resources = resources
        self.active = segments[-1]
        self.has_aborted = False
        """Whether a reader of committed records must be told what to leave out."""
        self._look_for_aborted()

    def _look_for_aborted(self) -> None:
        self.has_aborted = any(segment.has_aborted for segment in self._all)

    def __contains__(self, segment: Segment) -> bool:
        return segment in self._all

    @property
    def all(self) -> tuple[Segment, ...]:
        return tuple(self._all)

    @property
    def first_offset(self) -> int:
        return self._all[0].base_offset

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._all)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and those after it."""
        return self._all[max(bisect_right(self._all, offset, key=_BASE_OFFSET) - 1, 0) :]

    def aborted_in(self, offset: int, found: FileRange, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in a range that was read from `offset` on, maybe a few more."""
        segments = self.from_offset(offset)
        upper_offset = end_offset
        for place, segment in enumerate(segments):
            if segment.open_file(self._resources) is found.file:
                if place + 1 < len(segments):
                    upper_offset = segments[place + 1].base_offset
                reached = segment.offset_after(found.position + found.size, self._resources)
                if reached is not None:
                    upper_offset = min(upper_offset, reached + 1)
                break
        aborted: list[AbortedTransaction] = []
        for segment in segments:
            if segment.has_aborted and segment.aborted(self._resources).collect(offset, upper_offset, aborted):
                break
        return aborted

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """A marker was appended to the active segment that aborted something."""
        self.active.add_aborted(transaction, self._resources)
        self.has_aborted = True

    # Find

    def find(self, offset: int) -> tuple[Segment, BatchPlace | None]:
        """The first batch that reaches up to `offset` or beyond, over gaps and empty segments."""
        active = self.active
        if offset >= active.base_offset:
            return active, active.locate(offset, self._resources)
        for segment in self.from_offset(offset):
            place = segment.locate(offset, self._resources)
            if place is not None:
                return segment, place
        return active, None

    def end_before(self, segment: Segment, first: BatchPlace, limit_offset: int) -> int:
        """The position in `segment` where the first batch that begins at or after the limit is."""
        if limit_offset <= first.last_offset:
            return first.position + first.size
        place = segment.locate(limit_offset, self._resources)
        if place is None:
            return segment.size
        return place.position if place.base_offset >= limit_offset else place.position + place.size

    def past_empty(self, segment: Segment, place: BatchPlace, limit_offset: int) -> tuple[Segment, BatchPlace]:
        """The first batch with records after an empty one; the last empty one if none begins before the limit."""
        for _ in range(MAX_EMPTY_BATCHES):
            following, next_place = self.find(place.last_offset + 1)
            if next_place is None or next_place.base_offset >= limit_offset:
                break
            segment, place = following, next_place
            if place.size != HEADER_SIZE:
                break
        return segment, place

    # Change

    def create(self, directory: str, base_offset: int) -> Segment:
        """A new empty file, open and not yet in the list."""
        segment = Segment(directory, base_offset)
        segment.created_ms = self._resources.env.clock.wall_ms()
        segment.open_active(self._resources)
        return segment

    def push(self, segment: Segment, delete_delay_ms: int) -> None:
        """A created segment becomes the active one; the one before it is closed, or dropped if it is empty."""
        active = self.active
        if active.size:
            active.retire(self._resources)
        else:
            self._all = self._all[:-1]
            active.bury(self._resources, delete_delay_ms)
        self._all.append(segment)
        self.active = segment

    def cut(self, offset: int, delete_delay_ms: int) -> int:
        """Drop every batch that reaches up to `offset` or beyond; the end offset then, at most `offset`."""
        assert offset > self.first_offset
        kept = bisect_right(self._all, offset - 1, key=_BASE_OFFSET)
        doomed, self._all = self._all[kept:], self._all[:kept]
        active = self.active = self._all[-1]
        for segment in reversed(doomed):  # a crash between leaves no hole
            segment.bury(self._resources, delete_delay_ms)
        self._look_for_aborted()
        place = active.locate(offset, self._resources)
        if active.file is None:
            active.reopen(self._resources)
        if place is None:
            return offset
        end_offset = min(offset, place.base_offset)
        active.truncate(place, end_offset, self._resources)
        return end_offset

    def create_beside(self, directory: str, base_offset: int) -> Segment:
        """As `create`, under a name of its own, whatever there is; a start removes it."""
        segment = Segment(directory, base_offset)
        segment.created_ms = self._resources.env.clock.wall_ms()
        flags = READ_WRITE | CREATE | TRUNCATE
        segment.file = OpenFile(
            self._resources.env.disk, segment.path(LOG) + TEMPORARY, flags, self._resources.health
        )
        return segment

    def restart(self, fresh: Segment, delete_delay_ms: int) -> None:
        """Drop every segment and continue with one that was created beside them. Nothing here needs room.

        From the end, and the first one is replaced by a rename: a crash between leaves a log, of what was.
        """
        disk, doomed = self._resources.env.disk, self._all
        self._all, self.active = [fresh], fresh
        for segment in reversed(doomed):
            if segment.base_offset != fresh.base_offset:
                segment.bury(self._resources, delete_delay_ms)
            else:
                segment.bury(self._resources, delete_delay_ms, [suffix for suffix in OWN_FILES if suffix != LOG])
        disk.rename(fresh.path(LOG) + TEMPORARY, fresh.path(LOG))
        self._look_for_aborted()

    def drop_first(self, count: int, delete_delay_ms: int) -> None:
        assert count < len(self._all)
        doomed, self._all = self._all[:count], self._all[count:]
        self._look_for_aborted()
        for segment in doomed:
            segment.bury(self._resources, delete_delay_ms)

    def replace(self, old: Sequence[Segment], new: Segment, delete_delay_ms: int) -> None:
        """A compacted segment, whose files have their `.swap` names, takes the place of those it was made from."""
        first = self._all.index(old[0])
        assert self._all[first : first + len(old)] == list(old)
        self._all = [*self._all[:first], new, *self._all[first + len(old) :]]
        take_place(self._resources, delete_delay_ms, old, new)
        self._look_for_aborted()

    def relocate(self, directory: str, resources: StorageResources) -> None:
        """The files were renamed into another directory."""
        for segment in self._all:
            segment.drop_caches(self._resources)
            segment.directory = directory
            if segment.file is not None:
                segment.file.health = resources.health
        self._resources = resources

    def let_go(self) -> None:
        """Close every file, with nothing written."""
        for segment in self._all:
            segment.drop_caches(self._resources)
            segment.file = None

"""When a partition's end was where: a short curve of (time, end offset), from which the age of a position is read.

The curve is exact where it is recent and coarse where it is old: a place is dropped when the time between its
neighbours is a small part of how long ago that was. So a few hundred entries cover minutes as well as weeks, and
the error of an age is a few percent of it. Where the end stood still the curve has two places, before and after.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

MAX_PLACES = 256
COARSENESS = 0.05
"""What the gap that a dropped place leaves may be of its age."""


class OffsetHistory:
    """Times are wall-clock milliseconds, and never go back even if the clock does."""

    __slots__ = ("_ends", "_times")

    def __init__(self, end_offset: int, now_ms: int) -> None:
        self._times = array("q", [now_ms])
        self._ends = array("q", [end_offset])

    def __len__(self) -> int:
        return len(self._times)

    @property
    def end_offset(self) -> int:
        """The latest that is known."""
        return self._ends[-1]

    @property
    def first_offset(self) -> int:
        """It is not known when the end was below this offset."""
        return self._ends[0]

    def note(self, end_offset: int, before_ms: int, now_ms: int) -> None:
        """The end has moved, and stood at its old place until `before_ms`."""
        if end_offset < self._ends[-1]:
            # The log was truncated or started over: the history is about another log.
            self._times, self._ends = array("q", [now_ms]), array("q", [end_offset])
            return
        self._add(before_ms, self._ends[-1])
        self._add(now_ms, end_offset)
        if len(self._times) > MAX_PLACES:
            self._thin(now_ms)

    def note_older(self, offset: int, time_ms: int) -> None:
        """The end before this history began was at `offset`."""
        if offset < self._ends[0]:
            self._times.insert(0, min(time_ms, self._times[0]))
            self._ends.insert(0, offset)

    def passed_at(self, offset: int, before_ms: int, now_ms: int, end_offset: int) -> int | None:
        """When the end passed `offset`, in milliseconds; None if that was before this history.

        `end_offset` is the end now; if it is not the latest noted, that one still stood at `before_ms`.
        """
        if offset >= end_offset:
            return now_ms
        found = bisect_right(self._ends, offset) - 1
        if found < 0:
            return None
        time, end = self._times[found], self._ends[found]
        if found + 1 < len(self._ends):
            next_time, next_end = self._times[found + 1], self._ends[found + 1]
        else:
            time, next_time, next_end = max(time, before_ms), now_ms, end_offset
        return time + (next_time - time) * (offset - end) // (next_end - end)

    def _add(self, time_ms: int, end_offset: int) -> None:
        if time_ms > self._times[-1] or end_offset > self._ends[-1]:
            self._times.append(max(time_ms, self._times[-1]))
            self._ends.append(end_offset)

    def _thin(self, now_ms: int) -> None:
        coarseness = COARSENESS
        while len(self._times) > MAX_PLACES // 2:
            self._drop_close_ones(now_ms, coarseness)
            coarseness *= 2

    def _drop_close_ones(self, now_ms: int, coarseness: float) -> None:
        """From the newest to the oldest; both ends stay."""
        times, ends = self._times, self._ends
        kept = [len(times) - 1]
        for place in range(len(times) - 2, 0, -1):
            newer = times[kept[-1]]
            if newer - times[place - 1] > coarseness * (now_ms - newer):
                kept.append(place)
        kept.append(0)
        kept.reverse()
        self._times = array("q", [times[place] for place in kept])
        self._ends = array("q", [ends[place] for place in kept])

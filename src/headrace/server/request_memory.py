"""The memory of requests while they arrive or wait to be handled (`queued.max.request.bytes`).

Every byte that a client sent and that is not handled yet is counted. A large request, once a good part of it has
arrived, is given a buffer of its whole size; those buffers together stay within the limit, and a request that does
not fit waits unread in its socket until others are done. One alone always fits: `socket.request.max.bytes` bounds
it.

Memory that grows byte by byte, for beginnings of requests and requests that wait for an earlier one, may take
another quarter of the limit. It is never made to wait, since nobody could finish then. When it is too much, the
connections that have sent nothing for the longest time are closed. So are those that made no progress for a while
when a large request waits for their memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.env import Clock, Timer

STALLED_SECONDS = 10.0
"""A client that sends nothing for that long, while others wait for memory, loses its connection."""
BURST_BYTES = 16 * 1024 * 1024
"""This much memory in small pieces is a burst."""
BURST_END = 8
"""A burst is over when its peak has shrunk by this factor."""
AFTER_BURST_SECONDS = 1.0
GROWN_SHARE = 4
"""The divisor for the part of the limit that growing memory may take: one fourth."""


class Holder(Protocol):
    def give_up(self, reason: str) -> None:
        """Close the connection and `forget` what it holds."""
        ...


class _Share:
    __slots__ = ("changed", "is_reserved", "size")

    def __init__(self, size: int, is_reserved: bool, changed: float) -> None:
        self.size = size
        self.is_reserved = is_reserved
        self.changed = changed


class RequestMemory:
    def __init__(self, limit: int, clock: Clock, after_burst: Callable[[], None] = lambda: None) -> None:
        """A negative limit means none. `after_burst` is called after much was held in small pieces and freed."""
        self._limit = limit
        self._clock = clock
        self.reserved = 0
        """Bytes in buffers of large requests."""
        self.grown = 0
        """Bytes that grow one by one."""
        self._shares: dict[Holder, _Share] = {}
        """What each holder has, in the order of their last progress."""
        self._waiting: dict[Holder, Callable[[], None]] = {}
        self._timer: Timer | None = None
        self._after_burst = after_burst
        self._most_grown = 0
        """The peak of `grown` since the last burst."""

    def hold(self, holder: Holder, size: int) -> None:
        """Note that `holder` has `size` growing bytes from now on, and nothing else."""
        share = self._shares.pop(holder, None)
        if share is not None and share.is_reserved:
            self.reserved -= share.size
            if self._waiting:
                self._clock.call_soon(self._call_waiting)
        elif share is not None:
            self.grown -= share.size
        if self._most_grown >= BURST_BYTES and self.grown + size <= self._most_grown // BURST_END:
            self._most_grown = 0
            self._clock.call_later(AFTER_BURST_SECONDS, self._after_burst)
        if size:
            self.grown += size
            self._most_grown = max(self._most_grown, self.grown)
            self._shares[holder] = _Share(size, False, self._clock.monotonic())
            if 0 <= self._limit < self.grown * GROWN_SHARE:
                self._make_room(holder)

    def reserve(self, holder: Holder, size: int, resume: Callable[[], None]) -> bool:
        """Whether it may have a buffer of `size` bytes now; if not, `resume` is called to ask again."""
        if self.reserved and 0 <= self._limit < self.reserved + size:
            self._waiting[holder] = resume
            self._watch()
            return False
        self._waiting.pop(holder, None)
        self.hold(holder, 0)
        self.reserved += size
        self._shares[holder] = _Share(size, True, self._clock.monotonic())
        return True

    def progress(self, holder: Holder) -> None:
        """Note that a part of its buffer was filled."""
        share = self._shares.pop(holder)
        share.changed = self._clock.monotonic()
        self._shares[holder] = share

    def forget(self, holder: Holder) -> None:
        """Release everything of a closed connection."""
        self._waiting.pop(holder, None)
        self.hold(holder, 0)

    def _call_waiting(self) -> None:
        for resume in list(self._waiting.values()):
            resume()

    def _make_room(self, growing: Holder) -> None:
        """Close connections until there is room. Waiting ones cannot make progress, so they come last."""
        candidates = [holder for holder, share in self._shares.items() if not share.is_reserved]
        for holder in sorted(candidates, key=lambda holder: holder in self._waiting):
            if self.grown * GROWN_SHARE <= self._limit:
                return
            if holder is not growing:
                holder.give_up("its unfinished request holds memory that other connections need")

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_later(STALLED_SECONDS, self._look_for_stalled)

    def _look_for_stalled(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        latest = self._clock.monotonic() - STALLED_SECONDS
        for holder, share in list(self._shares.items()):
            if share.is_reserved and share.changed <= latest:
                holder.give_up("it stopped in the middle of a request while other connections wait for memory")
        self._watch()

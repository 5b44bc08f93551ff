"""What large requests may hold together while they arrive (`queued.max.request.bytes`).

A request that does not fit waits unread, in its connection's socket, until others are done; the first in line
goes first. One alone always fits: `socket.request.max.bytes` bounds it. Small requests are not counted: they are
handled in the shared buffer, or in one of at most its size.
"""

from __future__ import annotations

from collections.abc import Callable


class RequestMemory:
    __slots__ = ("_limit", "_waiting", "held")

    def __init__(self, limit: int) -> None:
        """A negative limit is none."""
        self._limit = limit
        self.held = 0
        self._waiting: dict[object, Callable[[], None]] = {}

    def take(self, owner: object, size: int, resume: Callable[[], None]) -> bool:
        """Whether `size` bytes may be held now; if not, `resume` is called when it is worth asking again."""
        if self._limit >= 0 and self.held and self.held + size > self._limit:
            self._waiting[owner] = resume
            return False
        self._waiting.pop(owner, None)
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        self.held -= size
        for resume in list(self._waiting.values()):
            resume()

    def forget(self, owner: object) -> None:
        """Its connection is gone."""
        self._waiting.pop(owner, None)

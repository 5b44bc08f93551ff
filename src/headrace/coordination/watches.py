"""What the drivers share on the loop's side: registered watches and the session's end."""

from __future__ import annotations

import math
from collections.abc import Callable

LEASE_MARGIN = 0.1
"""The part of a session's timeout that its owner does not count on: clocks drift, and answers take time to go."""


class LoopWatch:
    """One registered callback."""

    __slots__ = ("_callback", "_cancel", "active", "path")

    def __init__(self, path: str, callback: Callable[[], None], cancel: Callable[[LoopWatch], None]) -> None:
        self.path = path
        self.active = True
        self._callback = callback
        self._cancel = cancel

    def cancel(self) -> None:
        self.active = False
        self._cancel(self)

    def fire(self) -> None:
        if self.active:
            self._callback()


class LoopSession:
    """A session as its owner sees it; the driver calls `renewed` and `end`."""

    __slots__ = ("_callbacks", "_deadline", "_id", "_lost", "_timeout")

    def __init__(self, session_id: str, timeout: float, sent: float) -> None:
        """`sent` is when, by `Clock.boottime`, the session was asked for."""
        self._id = session_id
        self._timeout = timeout
        self._deadline = sent + timeout * (1 - LEASE_MARGIN)
        self._lost = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def id(self) -> str:
        return self._id

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def timeout(self) -> float:
        return self._timeout

    @property
    def deadline(self) -> float:
        return self._deadline

    def on_lost(self, callback: Callable[[], None]) -> None:
        if self._lost:
            callback()
        else:
            self._callbacks.append(callback)

    def renewed(self, sent: float) -> None:
        """A renewal that was sent then has been confirmed; an older one may be confirmed after a newer one."""
        if not self._lost:
            self._deadline = max(self._deadline, sent + self._timeout * (1 - LEASE_MARGIN))

    def end(self) -> None:
        if self._lost:
            return
        self._lost = True
        self._deadline = -math.inf
        for callback in self._callbacks:
            callback()

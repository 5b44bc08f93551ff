"""What the drivers share on the loop's side: registered watches and the session's end."""

from __future__ import annotations

from collections.abc import Callable


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
    """A session as its owner sees it; the driver calls `end`."""

    __slots__ = ("_callbacks", "_id", "_lost")

    def __init__(self, session_id: str) -> None:
        self._id = session_id
        self._lost = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def id(self) -> str:
        return self._id

    @property
    def lost(self) -> bool:
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        if self._lost:
            callback()
        else:
            self._callbacks.append(callback)

    def end(self) -> None:
        if self._lost:
            return
        self._lost = True
        for callback in self._callbacks:
            callback()

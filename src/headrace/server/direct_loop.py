"""An event loop on which a connection reads at once where the selector finds it readable.

The usual way from a readable socket to the protocol is a key in a list, a handle in a queue, a run in a context
and two methods of the transport: for a small request that is a noticeable part of its whole cost (docs/adr/0003).
Here the selector itself calls the connection. All else stays the transport's: whatever the connection declines to
read (the end of the stream, an error) and every other event reach the loop as always, and a descriptor whose
reading is paused is not in the selector at all.

What the connections of one turn answer leaves together after they were read from (docs/adr/0004).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
import selectors
from collections.abc import Callable, Mapping
from selectors import EVENT_READ, EVENT_WRITE, SelectorKey
from typing import Any

MAX_EVENTS = 512
"""At once; what is more comes with the next turn."""
PIECES_AT_ONCE = 64
"""Answers of so many pieces are collected, then sent: more would only make the first one wait."""
_READABLE = select.EPOLLIN


class DirectSelector(selectors.BaseSelector):
    """Epoll, level-triggered, as the standard library's own, but for those who asked to be called directly."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[int, SelectorKey] = {}
        self._readers: dict[int, Callable[[], bool]] = {}
        self._reading = False
        self._answers: list[Callable[[], None]] = []
        self._pieces = 0

    def read_directly(self, descriptor: int, read: Callable[[], bool]) -> None:
        """Call `read` when it is readable; it gives back False to leave that to the loop."""
        assert descriptor not in self._readers, "who closes a descriptor forgets it first"
        self._readers[descriptor] = read

    def forget(self, descriptor: int) -> None:
        self._readers.pop(descriptor, None)

    def answer(self, send: Callable[[], None], pieces: int) -> None:
        """Call `send` once the connections of this turn were read from; at once if none is being read from."""
        if self._reading:
            self._answers.append(send)
            self._pieces += pieces
        else:
            send()

    def register(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        descriptor = _descriptor(fileobj)
        if descriptor in self._keys:
            raise KeyError(f"{fileobj!r} is registered already")
        self._epoll.register(descriptor, _mask(events))
        key = self._keys[descriptor] = SelectorKey(fileobj, descriptor, events, data)
        return key

    def unregister(self, fileobj: Any) -> SelectorKey:
        key = self._keys.pop(_descriptor(fileobj))
        with contextlib.suppress(OSError):  # closed before: then the kernel has forgotten it
            self._epoll.unregister(key.fd)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        old = self._keys[_descriptor(fileobj)]
        if events != old.events:
            self._epoll.modify(old.fd, _mask(events))
        key = self._keys[old.fd] = SelectorKey(old.fileobj, old.fd, events, data)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        # Up to the next millisecond, which is all that epoll knows: a timer must never find itself early.
        seconds = -1.0 if timeout is None else math.ceil(timeout * 1000) / 1000 if timeout > 0 else 0.0
        ready = []
        keys, readers = self._keys, self._readers
        self._reading = True
        for descriptor, found in self._epoll.poll(seconds, min(len(keys), MAX_EVENTS) or 1):
            # Looked up only now: one that was called before may have ended or paused the others.
            key = keys.get(descriptor)
            if key is None:
                continue
            if found == _READABLE and descriptor in readers and readers[descriptor]():
                if self._pieces >= PIECES_AT_ONCE:
                    self._send_answers()
                continue
            events = (EVENT_WRITE if found & ~select.EPOLLIN else 0) | (
                EVENT_READ if found & ~select.EPOLLOUT else 0
            )
            ready.append((key, events & key.events))
        self._reading = False
        self._send_answers()
        return ready

    def _send_answers(self) -> None:
        answers, self._answers = self._answers, []
        self._pieces = 0
        for send in answers:
            send()

    def close(self) -> None:
        self._epoll.close()
        self._keys.clear()
        self._readers.clear()

    def get_map(self) -> Mapping[Any, SelectorKey]:
        return self._keys


class DirectLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.direct = DirectSelector()
        super().__init__(self.direct)


def new_loop() -> asyncio.AbstractEventLoop:
    return DirectLoop() if hasattr(select, "epoll") else asyncio.new_event_loop()


def _descriptor(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


def _mask(events: int) -> int:
    return (select.EPOLLIN if events & EVENT_READ else 0) | (select.EPOLLOUT if events & EVENT_WRITE else 0)

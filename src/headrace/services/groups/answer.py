"""A reply that may not be there yet. Lighter than a future; waiting code is called at once, in the same turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from headrace.groups.messages import GroupReply


class Answer:
    __slots__ = ("_reply", "_then")

    def __init__(self) -> None:
        self._reply: GroupReply | None = None
        self._then: Callable[[GroupReply], None] | None = None

    def done(self) -> bool:
        return self._reply is not None

    def result(self) -> GroupReply:
        assert self._reply is not None, "the reply is not there yet"
        return self._reply

    def give(self, reply: GroupReply) -> None:
        """The first reply counts: a request that was answered as unknown is not answered again."""
        if self._reply is None:
            self._reply = reply
            if self._then is not None:
                self._then(reply)

    def then(self, callback: Callable[[GroupReply], None]) -> None:
        """Call back when the reply comes, once; it must not raise."""
        assert self._reply is None
        assert self._then is None, "one waits"
        self._then = callback

    def __await__(self) -> Generator[object, None, GroupReply]:
        if self._reply is None:
            arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.then(lambda reply: None if arrived.done() else arrived.set_result(None))
            yield from arrived
        return self.result()

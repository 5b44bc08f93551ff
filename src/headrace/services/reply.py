"""What a hot handler gives back: a body now, a body later, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from headrace.storage.files import FileRange

P = ParamSpec("P")

Piece = bytes | bytearray | FileRange
Body = bytes | list[Piece]
"""A response without its frame header: bytes, or bytes and ranges of files in turn, bytes first and last."""


class CloseConnection(Exception):
    """The only possible response is to close the connection, as Kafka does when an acks=0 Produce fails."""


class Pending:
    """A body that is not there yet. The connection holds its place in the order of responses.

    Whoever made it calls `complete` or `fail` once. `cancel` is called instead when the connection is gone.
    """

    __slots__ = ("_body", "_deliver", "_error", "done")

    exclusive = False
    """Whether the connection's next request may be handled only after this one is answered."""

    def __init__(self) -> None:
        self._body: Body | None = None
        self._error: Exception | None = None
        self.done = False
        self._deliver: Callable[[], None] | None = None

    def complete(self, body: Body) -> None:
        assert not self.done, "a response is completed once"
        self.done = True
        self._body = body
        if self._deliver is not None:
            self._deliver()

    def complete_with(self, body_of: Callable[P, Body], *outcome: P.args, **more: P.kwargs) -> None:
        """With what this makes of an outcome, if anybody still waits. Never raises: others are told after this."""
        if self.done:
            return
        try:
            body = body_of(*outcome, **more)
        except Exception as error:
            self.fail(error)
        else:
            self.complete(body)

    def fail(self, error: Exception) -> None:
        """There will be no body: the connection is closed. Nothing happens after that."""
        if self.done:
            return
        self.done = True
        self._error = error
        if self._deliver is not None:
            self._deliver()

    def hang_up(self) -> None:
        """The same, where the reason was logged already."""
        self.fail(CloseConnection("a request could not be answered"))

    def result(self) -> Body:
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # its traceback holds this, and what it was made of, until the collector comes
        assert self._body is not None
        return self._body

    def when_done(self, deliver: Callable[[], None]) -> None:
        self._deliver = deliver

    def cancel(self) -> None:
        """Release whatever would have completed it."""
        self.done = True
        self._deliver = None


class NotQuick:
    """This request is for the cold handler of its API."""

    __slots__ = ()


NOT_QUICK = NotQuick()

Reply = Body | Pending | None
QuickReply = bytes | Pending | NotQuick

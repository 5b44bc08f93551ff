"""What a hot handler gives back: a body now, a body later, or none."""

from __future__ import annotations

from collections.abc import Callable

from headrace.storage.files import FileRange

Piece = bytes | bytearray | FileRange
Body = bytes | list[Piece]
"""A response without its frame header: bytes, or bytes and ranges of files in turn, bytes first and last."""


class CloseConnection(Exception):
    """The only answer left is to hang up, as Kafka does when an acks=0 Produce fails."""


class Pending:
    """A body that is not there yet. The connection holds its place in the order of responses.

    Whoever made it calls `complete` once. `cancel` is called instead when the connection is gone.
    """

    __slots__ = ("_body", "_deliver", "done")

    def __init__(self) -> None:
        self._body: Body | None = None
        self.done = False
        self._deliver: Callable[[], None] | None = None

    def complete(self, body: Body) -> None:
        assert not self.done, "a response is completed once"
        self.done = True
        self._body = body
        if self._deliver is not None:
            self._deliver()

    def hang_up(self) -> None:
        """There is no body and will be none."""
        self.done = True
        if self._deliver is not None:
            self._deliver()

    def result(self) -> Body:
        if self._body is None:
            raise CloseConnection("a request could not be answered")
        return self._body

    def when_done(self, deliver: Callable[[], None]) -> None:
        self._deliver = deliver

    def cancel(self) -> None:
        """Let go of whatever would have completed it."""
        self.done = True
        self._deliver = None


Reply = Body | Pending | None

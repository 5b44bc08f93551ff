"""Responses as they stand on the wire: length, correlation id, (flexible) no tagged fields, body."""

from __future__ import annotations

import struct
from typing import cast

from headrace.handlers.reply import Body, Pending, Piece
from headrace.storage.files import FileRange

_HEAD = struct.Struct(">ii")
_FLEXIBLE_HEAD = struct.Struct(">iiB")


def framed_bytes(body: bytes, correlation: int, flexible: bool) -> bytes:
    if flexible:
        return _FLEXIBLE_HEAD.pack(len(body) + 5, correlation, 0) + body
    return _HEAD.pack(len(body) + 4, correlation) + body


def framed(body: Body, correlation: int, flexible: bool) -> list[Piece]:
    if isinstance(body, bytes):
        return [framed_bytes(body, correlation, flexible)]
    if len(body) == 3:  # the usual Fetch: the records of one partition
        first, data, last = cast(tuple[bytes, FileRange, bytes], body)
        size = len(first) + data.size + len(last)
    else:
        size = sum(map(len, cast(list[bytes], body[::2]))) + sum(
            data.size for data in cast(list[FileRange], body[1::2])
        )
        first = cast(bytes, body[0])
    head = _FLEXIBLE_HEAD.pack(size + 5, correlation, 0) if flexible else _HEAD.pack(size + 4, correlation)
    body[0] = head + first
    return body


class FramedPending:
    """A response that is waited for, with what its frame needs."""

    __slots__ = ("_correlation", "_flexible", "exclusive", "pending")

    def __init__(self, pending: Pending, correlation: int, flexible: bool, exclusive: bool) -> None:
        self.pending = pending
        self.exclusive = exclusive
        """Whether the connection's next request may be handled only after this one is answered."""
        self._correlation = correlation
        self._flexible = flexible

    @property
    def done(self) -> bool:
        return self.pending.done

    def framed(self) -> list[Piece]:
        return framed(self.pending.result(), self._correlation, self._flexible)

    def cancel(self) -> None:
        self.pending.cancel()


class Answered:
    """A response that is ready but must wait for one before it."""

    __slots__ = ("_pieces",)
    done = True

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces

    def framed(self) -> list[Piece]:
        return self._pieces

    def cancel(self) -> None:
        """Nothing is waited for."""

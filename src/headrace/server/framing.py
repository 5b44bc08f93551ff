"""Responses as they stand on the wire: length, correlation id, (flexible) no tagged fields, body."""

from __future__ import annotations

import struct
from typing import cast

from headrace.metrics.requests import RequestMeter
from headrace.services.reply import Body, Pending, Piece
from headrace.storage.files import FileRange

_HEAD = struct.Struct(">ii")
_FLEXIBLE_HEAD = struct.Struct(">iiB")


def framed_bytes(body: bytes, correlation: int, flexible: bool) -> bytes:
    if flexible:
        return _FLEXIBLE_HEAD.pack(len(body) + 5, correlation, 0) + body
    return _HEAD.pack(len(body) + 4, correlation) + body


def framed(body: Body, correlation: int, flexible: bool, meter: RequestMeter) -> list[Piece]:
    if type(body) is bytes:
        whole = framed_bytes(body, correlation, flexible)
        meter.response_bytes += len(whole)
        return [whole]
    assert type(body) is list
    first = body[0]
    if len(body) == 3:  # the usual Fetch: the records of one partition
        size = len(first) + body[1][2] + len(body[2])  # a range between bytes
    else:
        size = sum(map(len, cast(list[bytes], body[::2]))) + sum(
            data.size for data in cast(list[FileRange], body[1::2])
        )
    head = _FLEXIBLE_HEAD.pack(size + 5, correlation, 0) if flexible else _HEAD.pack(size + 4, correlation)
    meter.response_bytes += len(head) + size
    body[0] = head + first  # type: ignore[operator]  # bytes come first
    return body


def bytes_of(answer: bytes | list[Piece] | FramedPending | None) -> int:
    """What an answer takes of our memory: ranges of files take none."""
    if type(answer) is bytes:
        return len(answer)
    if type(answer) is not list:
        return 0
    if len(answer) == 3:  # the usual Fetch
        return len(answer[0]) + len(answer[2])
    return sum(len(piece) for piece in answer if type(piece) is not FileRange)


class FramedPending:
    """A response that is waited for, with what its frame needs."""

    __slots__ = ("_correlation", "_flexible", "_meter", "exclusive", "pending", "since", "weight")

    def __init__(
        self, pending: Pending, correlation: int, flexible: bool, exclusive: bool, meter: RequestMeter
    ) -> None:
        self.pending = pending
        self.exclusive = exclusive
        self.weight = 0
        """The size of its request: what it holds while it waits goes by that."""
        self.since = 0.0
        """When it began to wait."""
        self._correlation = correlation
        self._flexible = flexible
        self._meter = meter

    @property
    def done(self) -> bool:
        return self.pending.done

    def framed(self, now: float) -> list[Piece]:
        meter = self._meter
        meter.wait_seconds += now - self.since
        body = self.pending.result()
        if type(body) is bytes:
            whole = framed_bytes(body, self._correlation, self._flexible)
            meter.response_bytes += len(whole)
            return [whole]
        return framed(body, self._correlation, self._flexible, meter)

    def cancel(self) -> None:
        self.pending.cancel()


class Answered:
    """A response that is ready but must wait for one before it."""

    __slots__ = ("_pieces", "weight")
    done = True

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces
        self.weight = bytes_of(pieces)

    def framed(self, now: float) -> list[Piece]:
        return self._pieces

    def cancel(self) -> None:
        """Nothing is waited for."""

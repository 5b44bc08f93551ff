"""Answers that tell their client to wait: the throttle time in a response, also in one that comes later."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import cast

from headrace.handlers.registry import Api
from headrace.services.reply import Body, Pending
from headrace.storage.files import FileRange

_INT32 = struct.Struct(">i")
MAX_THROTTLE_MS = 2**31 - 1


def milliseconds(seconds: float) -> int:
    """The value for a response: never 0 if the client has to wait."""
    return min(max(round(seconds * 1000), 1), MAX_THROTTLE_MS)


def size_of(body: Body) -> int:
    if isinstance(body, bytes):
        return len(body)
    return sum(piece.size if isinstance(piece, FileRange) else len(piece) for piece in body)


def throttle_place(api: Api, version: int) -> int | None:
    """Where in the encoded response of a cold API the throttle time stands: nearly always at the beginning."""
    place = 0
    for name in api.response.field_names() if api.response is not None else ():
        assert api.response is not None
        if not api.response.has_field(name, version):
            continue
        if name == "throttle_time_ms":
            return place
        if name != "error_code":
            return None
        place += 2
    return None


def throttle_at(body: bytes, place: int) -> int:
    told: int = _INT32.unpack_from(body, place)[0]
    return told


def with_throttle_at(body: Body, place: int, throttle_ms: int) -> Body:
    if type(body) is list:
        first = cast(bytes, body[0])
        return [_replaced(first, place, throttle_ms), *body[1:]]
    return _replaced(cast(bytes, body), place, throttle_ms)


def _replaced(data: bytes, place: int, throttle_ms: int) -> bytes:
    return b"".join((data[:place], _INT32.pack(throttle_ms), data[place + 4 :]))


class SettledLater(Pending):
    """An answer that is waited for, and what is done to it when it has come."""

    __slots__ = ("_finish", "_inner")

    def __init__(self, inner: Pending, finish: Callable[[Body], Body]) -> None:
        super().__init__()
        self._inner = inner
        self._finish = finish
        inner.when_done(self._inner_done)

    def _inner_done(self) -> None:
        try:
            body = self._finish(self._inner.result())
        except Exception as error:
            self.fail(error)
        else:
            self.complete(body)

    def cancel(self) -> None:
        self._inner.cancel()
        super().cancel()

"""A frame to send whose large fields stay where they are: they are sent from there instead of copied first."""

from __future__ import annotations

import socket
from typing import Self

from headrace.model.buffers import Buffer

APART_FROM_BYTES = 16 * 1024
"""Below this, copying is cheaper than a piece of its own."""
MAX_VECTOR = 1024
"""Pieces that the kernel takes at once."""


class GatheredFrame(bytearray):
    """Written to as any bytearray, at its end only. What is apart must not change until the frame is sent."""

    def __init__(self, size: int = 0) -> None:
        super().__init__(size)
        self._apart: list[tuple[int, Buffer]] = []
        """With the place before which each belongs, among the bytes that are here."""
        self._apart_bytes = 0

    def __len__(self) -> int:
        return super().__len__() + self._apart_bytes

    def __iadd__(self, data: object) -> Self:
        assert isinstance(data, Buffer)
        if len(data) < APART_FROM_BYTES:
            self.extend(data)
        else:
            self._apart.append((super().__len__(), data))
            self._apart_bytes += len(data)
        return self

    def pieces(self) -> list[memoryview]:
        """All of it, in order."""
        own, found, start = memoryview(self), [], 0
        for place, data in self._apart:
            found += [own[start:place], memoryview(data)]
            start = place
        return [piece for piece in (*found, own[start:]) if len(piece)]


def send_pieces(sock: socket.socket, pieces: list[memoryview]) -> None:
    """All of them, or the error of the socket: TimeoutError if it took nothing for as long as its timeout."""
    first = 0
    while first < len(pieces):
        sent = sock.sendmsg(pieces[first : first + MAX_VECTOR])
        while first < len(pieces) and sent >= len(pieces[first]):
            sent -= len(pieces[first])
            first += 1
        if sent:
            pieces[first] = pieces[first][sent:]

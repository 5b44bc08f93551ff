"""Cuts a stream of bytes into response frames: length int32, then that many bytes.

Small frames are cut out of one receive buffer; one that does not fit gets memory of its exact size, which the
socket fills directly. With a receive buffer of `NO_READ_AHEAD` bytes that is every frame, and nothing is read
beyond its end.
"""

from __future__ import annotations

import struct

from headrace.client.buffers import Take, fresh_memory
from headrace.model.errors import ProtocolError

RECEIVE_BUFFER_BYTES = 64 * 1024
NO_READ_AHEAD = 4
"""Room for a length and nothing more."""
MAX_FRAME_BYTES = 512 * 1024 * 1024
FIRST_BYTES = 16
LENGTH = struct.Struct(">i")


class FrameReader:
    __slots__ = ("_buffer", "_filled", "_frame", "_frame_filled", "_take", "head")

    def __init__(self, receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES, take: Take = fresh_memory) -> None:
        """`take` gives the memory of a large frame."""
        assert receive_buffer_bytes >= LENGTH.size
        self._buffer = bytearray(receive_buffer_bytes)
        self._filled = 0
        self._frame: memoryview | None = None
        self._frame_filled = 0
        self._take = take
        self.head = b""
        """The first bytes that ever came: they tell what answers when it is no broker."""

    def writable(self) -> memoryview:
        """Where the socket puts what comes next."""
        if self._frame is not None:
            return self._frame[self._frame_filled :]
        return memoryview(self._buffer)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that `count` more bytes have completed, valid for as long as they are held."""
        if self._frame is not None:
            self._frame_filled += count
            if self._frame_filled < len(self._frame):
                return []
            done, self._frame = self._frame, None
            return [done]
        if not self.head:
            self.head = bytes(self._buffer[self._filled : self._filled + count][:FIRST_BYTES])
        self._filled += count
        return self._cut()

    def _cut(self) -> list[memoryview]:
        with memoryview(self._buffer) as buffer:
            data = bytes(buffer[: self._filled])
        view = memoryview(data)
        frames: list[memoryview] = []
        position = 0
        while len(data) - position >= LENGTH.size:
            (size,) = LENGTH.unpack_from(data, position)
            if not 0 <= size <= MAX_FRAME_BYTES:
                raise ProtocolError(f"a response of {size} bytes")
            start = position + LENGTH.size
            if size > len(data) - start:
                if size > len(self._buffer) - LENGTH.size:
                    self._begin_large(view[start:], size)
                    position = len(data)
                break
            frames.append(view[start : start + size])
            position = start + size
        self._filled = len(data) - position
        self._buffer[: self._filled] = view[position:]
        return frames

    def _begin_large(self, first: memoryview, size: int) -> None:
        self._frame = self._take(size)
        self._frame[: len(first)] = first
        self._frame_filled = len(first)

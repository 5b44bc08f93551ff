"""Cuts a stream of bytes into response frames: length int32, then that many bytes.

Small frames are cut out of one receive buffer; a large one gets its own, which the socket fills directly.
"""

from __future__ import annotations

import struct

from headrace.model.errors import ProtocolError

RECEIVE_BUFFER_BYTES = 64 * 1024
MAX_FRAME_BYTES = 512 * 1024 * 1024
_LENGTH = struct.Struct(">i")


class FrameReader:
    __slots__ = ("_buffer", "_filled", "_frame", "_frame_filled", "head")

    def __init__(self) -> None:
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._filled = 0
        self._frame: bytearray | None = None
        self._frame_filled = 0
        self.head = b""
        """The first bytes that ever came: they tell what answers when it is no broker."""

    def writable(self) -> memoryview:
        """Where the socket puts what comes next."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._buffer)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that `count` more bytes have completed, valid for as long as they are held."""
        if self._frame is not None:
            self._frame_filled += count
            if self._frame_filled < len(self._frame):
                return []
            done, self._frame = memoryview(self._frame), None
            return [done]
        if not self.head:
            self.head = bytes(self._buffer[self._filled : self._filled + count][:16])
        self._filled += count
        return self._cut()

    def _cut(self) -> list[memoryview]:
        data = bytes(self._buffer[: self._filled])
        view = memoryview(data)
        frames: list[memoryview] = []
        position = 0
        while len(data) - position >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(data, position)
            if not 0 <= size <= MAX_FRAME_BYTES:
                raise ProtocolError(f"a response of {size} bytes")
            start = position + _LENGTH.size
            if size > len(data) - start:
                if size > RECEIVE_BUFFER_BYTES - _LENGTH.size:
                    self._begin_large(data[start:], size)
                    position = len(data)
                break
            frames.append(view[start : start + size])
            position = start + size
        self._filled = len(data) - position
        self._buffer[: self._filled] = data[position:]
        return frames

    def _begin_large(self, first: bytes, size: int) -> None:
        self._frame = bytearray(size)
        self._frame[: len(first)] = first
        self._frame_filled = len(first)

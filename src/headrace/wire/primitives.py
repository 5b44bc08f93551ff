"""The types of Kafka's protocol: how each is read and written, in the plain and the compact encoding.

A reader is `read(cursor) -> value`, a writer `write(out, value)`. The `Cursor` never reads past the end of its
frame: every length is checked against the bytes that are left before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.model.errors import ProtocolError
from headrace.model.limits import MAX_STRING_BYTES
from headrace.model.varint import read_uvarint, write_uvarint

Reader = Callable[["Cursor"], Any]
Writer = Callable[[bytearray, Any], None]


class Cursor:
    """A position in a frame."""

    __slots__ = ("buffer", "elements_left", "end", "position")

    def __init__(
        self, buffer: bytes | bytearray | memoryview, position: int = 0, max_elements: int = 2**63
    ) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        self.elements_left = max_elements

    def keep(self) -> None:
        """Go on with a copy of the frame, whose memory is somebody else's soon."""
        if type(self.buffer) is not bytes:
            self.buffer = bytes(self.buffer)

    @property
    def left(self) -> int:
        return self.end - self.position

    def take(self, size: int) -> bytes:
        start = self.position
        if size < 0 or size > self.end - start:
            raise ProtocolError(f"a field of {size} bytes in a frame with {self.end - start} left")
        self.position = start + size
        return bytes(self.buffer[start : self.position])

    def uvarint(self) -> int:
        position = self.position
        if position < self.end and (byte := self.buffer[position]) < 0x80:  # one byte, the usual case
            self.position = position + 1
            return byte
        value, self.position = read_uvarint(self.buffer, position)
        return value

    def count(self, value: int) -> int:
        """A count of elements, each of at least one byte."""
        if value < 0 or value > self.end - self.position:
            raise ProtocolError(f"a count of {value} in a frame with {self.left} bytes left")
        self.elements_left -= value
        if self.elements_left < 0:
            raise ProtocolError("more elements than one message may hold")
        return value


@dataclass(frozen=True, slots=True)
class Primitive:
    """A protocol type. Fixed-size ones have one encoding; strings and bytes have two, each nullable or not."""

    name: str
    default: Any
    read: Reader
    write: Writer
    read_compact: Reader
    write_compact: Writer
    nullable: bool = False
    """Whether the type has a null of its own."""


def _fixed(name: str, code: str, default: Any = 0) -> Primitive:
    packer = struct.Struct(">" + code)
    size = packer.size
    unpack_from, pack = packer.unpack_from, packer.pack

    def read(cursor: Cursor) -> Any:
        position = cursor.position
        cursor.position = position + size
        try:
            return unpack_from(cursor.buffer, position)[0]
        except struct.error:
            raise ProtocolError(f"a {name} is cut off") from None

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return Primitive(name, default, read, write, read, write)


INT8 = _fixed("int8", "b")
INT16 = _fixed("int16", "h")
INT32 = _fixed("int32", "i")
INT64 = _fixed("int64", "q")
FLOAT64 = _fixed("float64", "d", 0.0)


def _read_bool(cursor: Cursor) -> bool:
    return cursor.take(1) != b"\0"


def _write_bool(out: bytearray, value: Any) -> None:
    out.append(1 if value else 0)


BOOL = Primitive("bool", False, _read_bool, _write_bool, _read_bool, _write_bool)


def _read_uuid(cursor: Cursor) -> bytes:
    return cursor.take(16)


def _write_uuid(out: bytearray, value: Any) -> None:
    assert len(value) == 16
    out += value


UUID = Primitive("uuid", bytes(16), _read_uuid, _write_uuid, _read_uuid, _write_uuid)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ProtocolError("a string is not UTF-8") from None


_INT16_STRUCT = struct.Struct(">h")
_INT32_STRUCT = struct.Struct(">i")


def _read_string(cursor: Cursor) -> str | None:
    length = INT16.read(cursor)
    return None if length < 0 else _text(cursor.take(length))


def _write_string(out: bytearray, value: Any) -> None:
    if value is None:
        out += b"\xff\xff"
        return
    raw = value.encode()
    out += _INT16_STRUCT.pack(len(raw))
    out += raw


def _read_compact_string(cursor: Cursor) -> str | None:
    length = cursor.uvarint() - 1
    if length > MAX_STRING_BYTES:
        raise ProtocolError(f"a string of {length} bytes, and {MAX_STRING_BYTES} are the most")
    return None if length < 0 else _text(cursor.take(length))


def _write_compact_string(out: bytearray, value: Any) -> None:
    if value is None:
        out.append(0)
        return
    raw = value.encode()
    write_uvarint(out, len(raw) + 1)
    out += raw


def _read_bytes(cursor: Cursor) -> bytes | None:
    length = INT32.read(cursor)
    return None if length < 0 else cursor.take(length)


def _write_bytes(out: bytearray, value: Any) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += _INT32_STRUCT.pack(len(value))
    out += value


def _read_compact_bytes(cursor: Cursor) -> bytes | None:
    length = cursor.uvarint() - 1
    return None if length < 0 else cursor.take(length)


def _write_compact_bytes(out: bytearray, value: Any) -> None:
    if value is None:
        out.append(0)
        return
    write_uvarint(out, len(value) + 1)
    out += value


STRING = Primitive(
    "string", "", _read_string, _write_string, _read_compact_string, _write_compact_string, nullable=True
)
BYTES = Primitive(
    "bytes", b"", _read_bytes, _write_bytes, _read_compact_bytes, _write_compact_bytes, nullable=True
)
RECORDS = Primitive(
    "records", None, _read_bytes, _write_bytes, _read_compact_bytes, _write_compact_bytes, nullable=True
)

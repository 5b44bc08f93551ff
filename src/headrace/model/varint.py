"""Variable-length integers: plain (lengths and counts of the protocol) and zig-zag (inside records)."""

from __future__ import annotations

from headrace.model.buffers import Buffer
from headrace.model.errors import ProtocolError

_MAX_BYTES = 10


def write_uvarint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value and the position after it."""
    value = shift = 0
    try:
        for _ in range(_MAX_BYTES):
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
    except IndexError:
        raise ProtocolError("a varint is cut off") from None
    raise ProtocolError("a varint is longer than ten bytes")


def write_varint(out: bytearray, value: int) -> None:
    write_uvarint(out, (value << 1) ^ (value >> 63))


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    raw, position = read_uvarint(buffer, position)
    return (raw >> 1) ^ -(raw & 1), position

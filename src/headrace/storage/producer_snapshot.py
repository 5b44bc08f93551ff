"""The `.snapshot` file: what is known of each producer at one offset. Kafka's format to the byte.

version int16 (1) · crc uint32 (crc32c of all that follows) · count int32 · entries of 46 bytes:
producerId int64 · epoch int16 · lastSequence int32 · lastOffset int64 · offsetDelta int32 ·
timestamp int64 · coordinatorEpoch int32 · currentTxnFirstOffset int64

Kafka has one entry for each producer. Here a producer may have several, one for each batch that is remembered.
Readers that expect one take the last, and know as much as they ever did.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1
_CRC_START = 6
assert _ENTRY.size == 46


class SnapshotEntry(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode_snapshot(entries: Sequence[SnapshotEntry]) -> bytes:
    data = bytearray(_HEADER.size)
    for entry in entries:
        data += _ENTRY.pack(*entry)
    _HEADER.pack_into(data, 0, _VERSION, 0, len(entries))
    _HEADER.pack_into(data, 0, _VERSION, crc32c(memoryview(data)[_CRC_START:]), len(entries))
    return bytes(data)


def decode_snapshot(data: bytes) -> list[SnapshotEntry] | None:
    """The entries, or None for bytes that are not a whole valid snapshot."""
    if len(data) < _HEADER.size:
        return None
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION or len(data) != _HEADER.size + count * _ENTRY.size:
        return None
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        return None
    return [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :])]

"""The header of a record batch, format v2: the only part of a batch that the hot path looks at.

    baseOffset int64 · batchLength int32 · partitionLeaderEpoch int32 · magic int8 · crc uint32 ·
    attributes int16 · lastOffsetDelta int32 · baseTimestamp int64 · maxTimestamp int64 ·
    producerId int64 · producerEpoch int16 · baseSequence int32 · recordCount int32 · records...

batchLength counts from partitionLeaderEpoch on. The CRC (crc32c) covers everything from attributes on, so the
broker may set the base offset and the leader epoch without touching it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from headrace.model.errors import ErrorCode, KafkaError

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 61
LENGTH_OVERHEAD = 12
"""Bytes of a batch that batchLength does not count: the base offset and the length itself."""
CRC_START = 21
"""Where the bytes begin that the CRC covers."""
FLAGS_AT = CRC_START + 1
"""The low byte of the attributes."""
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

BASE_OFFSET_AND_LENGTH = struct.Struct(">qi")
OFFSET_LENGTH_EPOCH = struct.Struct(">qii")


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


def is_transactional(batch: memoryview) -> bool:
    """Whether the attributes say so; False for what is too short to be a batch."""
    return len(batch) >= HEADER_SIZE and batch[FLAGS_AT] & TRANSACTIONAL != 0


_new_tuple = tuple.__new__
"""What `_make` does, without its own call: this is made for every batch."""


def parse_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header as it is, unchecked. `buffer` must hold HEADER_SIZE bytes there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def checked_header(batch: memoryview | bytes) -> BatchHeader:
    """The header of the one batch that `batch` must be, checked by itself and against its CRC."""
    size = len(batch)
    if size < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A record batch of {size} bytes is shorter than its header")
    header = _new_tuple(BatchHeader, HEADER.unpack_from(batch))
    if header.magic != MAGIC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT if header.magic < MAGIC else ErrorCode.INVALID_RECORD,
            f"Record batch format v{header.magic} is not accepted, only v{MAGIC}",
        )
    if header.batch_length + LENGTH_OVERHEAD != size:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE
            if header.batch_length + LENGTH_OVERHEAD > size
            else ErrorCode.INVALID_RECORD,
            f"A record batch states {header.batch_length + LENGTH_OVERHEAD} bytes where {size} were sent; "
            "exactly one batch per partition is accepted",
        )
    if crc32c(batch[CRC_START:]) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "The CRC of a record batch does not match its bytes")
    return header

"""Building batches: one from records, one from another with a different codec. Formats in `batch` and `reader`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from headrace.model.buffers import Buffer
from headrace.model.varint import write_varint
from headrace.records.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
)
from headrace.records.compression import MAX_DECOMPRESSED_BYTES, compress
from headrace.records.reader import records_data

Headers = Sequence[tuple[str, bytes | None]]
NO_EPOCH = -1


class NewRecord(NamedTuple):
    """A record that has no offset yet."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """Who wrote a batch, and its place in that producer's sequence."""

    id: int
    epoch: int
    base_sequence: int


NO_PRODUCER = ProducerStamp(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)


def build_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    codec: int = 0,
    attributes: int = 0,
    producer: ProducerStamp = NO_PRODUCER,
    leader_epoch: int = NO_EPOCH,
) -> bytearray:
    """One batch of consecutive offsets. `attributes` may hold any flags but the codec."""
    items = list(records)
    assert items, "a batch holds at least one record"
    base_timestamp = max_timestamp = items[0].timestamp
    data = bytearray()
    for index, record in enumerate(items):
        timestamp = record[2]  # by index: the fields of a named tuple are slow
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        _write_record(data, record, timestamp - base_timestamp, index)
    body = compress(codec, data) if codec else data
    count = len(items)
    batch = bytearray(
        HEADER.pack(
            *(base_offset, HEADER_SIZE - LENGTH_OVERHEAD + len(body), leader_epoch, MAGIC, 0),
            *(attributes | codec, count - 1, base_timestamp, max_timestamp),
            *(producer.id, producer.epoch, producer.base_sequence, count),
        )
    )
    batch += body
    seal(batch)
    return batch


def recompress(
    header: BatchHeader,
    batch: Buffer,
    codec: int,
    level: int | None = None,
    limit: int = MAX_DECOMPRESSED_BYTES,
) -> bytearray:
    """The same batch with another codec; the records themselves are not checked."""
    data = compress(codec, records_data(header, batch, limit), level)
    return assemble(header._replace(attributes=header.attributes & ~CODEC_MASK | codec), data)


def seal(batch: bytearray | memoryview) -> None:
    """Set the CRC of a batch after its attributes, timestamps or records were changed in place."""
    crc = crc32c(memoryview(batch)[CRC_START:])
    batch[CRC_START - 4 : CRC_START] = crc.to_bytes(4, "big")


def stamp_append_time(
    header: BatchHeader, batch: Buffer, now_ms: int
) -> tuple[BatchHeader, bytearray | memoryview]:
    """The batch with the broker's time as timestamp (LogAppendTime), sealed again; in place if writable."""
    return set_max_timestamp(header._replace(attributes=header.attributes | LOG_APPEND_TIME), batch, now_ms)


def set_max_timestamp(
    header: BatchHeader, batch: Buffer, timestamp: int
) -> tuple[BatchHeader, bytearray | memoryview]:
    """The batch with this header and timestamp, sealed again; in place where it is writable."""
    writable = isinstance(batch, bytearray) or (isinstance(batch, memoryview) and not batch.readonly)
    stamped = batch if writable else bytearray(batch)
    assert not isinstance(stamped, bytes)
    header = header._replace(max_timestamp=timestamp)
    HEADER.pack_into(stamped, 0, *header)
    seal(stamped)
    return header, stamped


def assemble(header: BatchHeader, data: Buffer) -> bytearray:
    batch = bytearray(HEADER_SIZE + len(data))
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LENGTH_OVERHEAD))
    batch[HEADER_SIZE:] = data
    seal(batch)
    return batch


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_VARINTS = tuple(_varint(value) for value in range(1024))
"""Encoded varints of the lengths and deltas that most records have."""


def _write_record(out: bytearray, record: NewRecord, timestamp_delta: int, offset_delta: int) -> None:
    value, key, _, headers = record
    if key is not None and value is not None and not headers and 0 <= timestamp_delta < 1024 > offset_delta:
        key_size, value_size = len(key), len(value)
        if key_size + value_size < 1000:  # the usual small one
            timestamp, offset = _VARINTS[timestamp_delta], _VARINTS[offset_delta]
            lengths = _VARINTS[key_size], _VARINTS[value_size]
            small = b"".join((b"\0", timestamp, offset, lengths[0], key, lengths[1], value, b"\0"))
            out += _VARINTS[len(small)]
            out += small
            return
    body = bytearray(1)  # attributes: none are defined
    body += _VARINTS[timestamp_delta] if 0 <= timestamp_delta < 1024 else _varint(timestamp_delta)
    body += _VARINTS[offset_delta] if offset_delta < 1024 else _varint(offset_delta)
    _write_bytes(body, key)
    _write_bytes(body, value)
    if headers:
        _write_headers(body, headers)
    else:
        body.append(0)
    size = len(body)
    out += _VARINTS[size] if size < 1024 else _varint(size)
    out += body


def _write_headers(body: bytearray, headers: Headers) -> None:
    write_varint(body, len(headers))
    for name, value in headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, value)


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        write_varint(out, -1)
        return
    size = len(data)
    out += _VARINTS[size] if size < 1024 else _varint(size)
    out += data

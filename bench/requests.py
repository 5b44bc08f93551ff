"""Request frames for the load generator, built once, before the clock starts.

Everything is written here with `struct`, apart from the product's own code, so that a fault in the product's
codec cannot hide itself by being on both ends. Versions are fixed: Produce v9, Fetch v12 (both flexible, topics
by name).

A request file is what `loadgen.c` reads: "HRLOAD1\\0", uint32 count, `count` entries of ten uint32, the frames;
all little-endian. The correlation id of a frame is its place in the file, and the generator checks that it
comes back.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cramjam
from crc32c import crc32c

PRODUCE, FETCH = 0, 1
BATCH_HEADER_SIZE = 61
BATCH_OVERHEAD = 12
RECORD_OVERHEAD = 12
"""What one record adds to its value at most, up to 100 KB: lengths, deltas, attributes."""
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NO_PRODUCER = (-1, -1, -1)
FILE_MAGIC = b"HRLOAD1\0"
ENTRY = struct.Struct("<10I")
MAX_WAIT_MS = 500
XERIAL_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
XERIAL_BLOCK = 32 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A frame without its correlation id, and the places in it that the generator needs. 0: it has none."""

    frame: bytes
    api_key: int
    partition: int
    records: int = 0
    batch_at: int = 0
    batch_size: int = 0
    stamp_at: int = 0
    session_at: int = 0
    offset_at: int = 0


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else -value * 2 - 1)


def record(offset_delta: int, value: bytes) -> bytes:
    """A record without key and headers."""
    body = b"\0\0" + zigzag(offset_delta) + zigzag(-1) + zigzag(len(value)) + value + b"\0"
    return zigzag(len(body)) + body


def batch(values: Sequence[bytes], codec: str = "none") -> bytes:
    """A record batch v2 of `values`, at offset 0, with the time of now."""
    records = compress(b"".join(record(index, value) for index, value in enumerate(values)), codec)
    now_ms = int(time.time() * 1000)
    count = len(values)
    checked = struct.pack(">hiqqqhii", CODECS[codec], count - 1, now_ms, now_ms, *NO_PRODUCER, count) + records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def compress(records: bytes, codec: str) -> bytes:
    if codec == "gzip":
        return bytes(cramjam.gzip.compress(records, level=6))
    if codec == "snappy":
        return xerial_snappy(records)
    if codec == "lz4":
        # Kafka reads no frames whose blocks depend on each other, and its clients write none.
        compressor = cramjam.lz4.Compressor(level=1, block_linked=False)
        compressor.compress(records)
        return bytes(compressor.finish())
    if codec == "zstd":
        return bytes(cramjam.zstd.compress(records, level=3))
    return records


def xerial_snappy(records: bytes) -> bytes:
    """Snappy in the block framing that Kafka's clients write."""
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(records), XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(records[start : start + XERIAL_BLOCK]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def random_values(count: int, size: int, seed: int = 1) -> list[bytes]:
    """Values that do not compress, the same for the same seed."""
    source = random.Random(seed)
    pool = source.randbytes(size + 4096)
    return [pool[start : start + size] for start in (source.randrange(4096) for _ in range(count))]


def text_values(count: int, size: int, seed: int = 1) -> list[bytes]:
    """Values like log lines, which compress about four to one."""
    source = random.Random(seed)
    words = [f"field{n}={source.randrange(1000)}" for n in range(200)]
    return [_line(source, words, size) for _ in range(count)]


def _line(source: random.Random, words: list[str], size: int) -> bytes:
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(source.choice(words))
        length += len(parts[-1]) + 1
    return " ".join(parts).encode()[:size]


def values_per_batch(record_size: int, batch_size: int) -> int:
    """How many records of that size a batch of about `batch_size` bytes holds: one at least."""
    return max(1, (batch_size - BATCH_HEADER_SIZE) // (record_size + RECORD_OVERHEAD))


def produce(topic: str, partition: int, batch_bytes: bytes, acks: int = -1) -> Request:
    head = _header(PRODUCE, 9) + b"\0" + struct.pack(">hi", acks, 30_000) + uvarint(2)
    head += _compact(topic) + uvarint(2) + struct.pack(">i", partition) + uvarint(len(batch_bytes) + 1)
    batch_at = 4 + len(head)
    (count,) = struct.unpack_from(">i", batch_bytes, 57)
    return Request(
        _frame(head + batch_bytes + b"\0\0\0"),
        PRODUCE,
        partition,
        records=count,
        batch_at=batch_at,
        batch_size=len(batch_bytes),
        stamp_at=batch_at + _first_value_at(batch_bytes),
    )


def fetch(
    topic: str,
    partition: int,
    offset: int,
    max_bytes: int,
    *,
    session: bool = False,
    max_wait_ms: int = MAX_WAIT_MS,
) -> Request:
    """A Fetch of one partition. `session` asks for a fetch session, as clients that go on reading do."""
    head = _header(FETCH, 12) + struct.pack(">iiiib", -1, max_wait_ms, 1, 0x7FFFFFFF, 0)
    session_at = 4 + len(head)
    head += struct.pack(">ii", 0, 0 if session else -1) + uvarint(2) + _compact(topic) + uvarint(2)
    offset_at = 4 + len(head) + 8
    head += struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes) + b"\0\0"
    frame = _frame(head + uvarint(1) + uvarint(1) + b"\0")
    return Request(frame, FETCH, partition, session_at=session_at, offset_at=offset_at)


def produce_error(answer: bytes) -> int:
    """The error code of the one partition in a Produce v9 answer."""
    at = 7 + answer[6] - 1 + 1 + 4
    return int.from_bytes(answer[at : at + 2], "big", signed=True)


def fetch_error(answer: bytes) -> int:
    """The error code of the one partition in a Fetch v12 answer, or of the whole answer."""
    whole = int.from_bytes(answer[9:11], "big", signed=True)
    at = 17 + answer[16] - 1 + 1 + 4
    return whole or int.from_bytes(answer[at : at + 2], "big", signed=True)


def _header(api_key: int, version: int) -> bytes:
    client = b"bench"
    return struct.pack(">hhih", api_key, version, 0, len(client)) + client + b"\0"


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _compact(text: str) -> bytes:
    return uvarint(len(text) + 1) + text.encode()


def _first_value_at(batch_bytes: bytes) -> int:
    """Where the first record's value begins. Only of use where the batch is not compressed."""
    position = BATCH_HEADER_SIZE
    position = _after_varint(batch_bytes, position) + 3
    position = _after_varint(batch_bytes, position)
    return _after_varint(batch_bytes, position)


def _after_varint(data: bytes, position: int) -> int:
    while data[position] & 0x80:
        position += 1
    return position + 1


def write_requests(path: Path, requests: Iterable[Request]) -> Path:
    items = list(requests)
    assert items, "a request file needs a request"
    with path.open("wb") as out:
        out.write(FILE_MAGIC + struct.pack("<I", len(items)))
        for item in items:
            out.write(_entry(item))
        for index, item in enumerate(items):
            out.write(item.frame[:8] + struct.pack(">i", index) + item.frame[12:])
    return path


def _entry(item: Request) -> bytes:
    return ENTRY.pack(
        len(item.frame),
        item.api_key,
        item.partition,
        item.records,
        item.batch_at,
        item.batch_size,
        item.stamp_at,
        item.session_at,
        item.offset_at,
        0,
    )

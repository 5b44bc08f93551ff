"""A tiny blocking client that writes and reads bare bytes, for looking at a broker from outside.

It shares no code with the broker's own codec, so that a mistake there cannot hide itself. It knows just enough of
the protocol to look at stored batches (Fetch v11), to send batches of any shape (Produce v8), to ask for topics
(Metadata v4) and versions (ApiVersions v0); everything else is sent and received as bytes.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from crc32c import crc32c

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
PRODUCE_VERSION = 8
FETCH_VERSION = 11
TIMEOUT_S = 60.0
PRODUCE_TIMEOUT_MS = 10_000
MAX_RESPONSE_BYTES = 128 * 1024 * 1024

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch's header says."""

    base_offset: int
    length: int
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
    def codec(self) -> int:
        return self.attributes & 7


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    error: int
    high_watermark: int
    log_start_offset: int
    batches: tuple[Batch, ...]
    records: bytes


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    error: int
    base_offset: int
    log_append_time: int
    error_message: str | None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    """The place of each bad record in the batch, and what is wrong with it."""


def text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None = "raw") -> bytes:
    """A request header v1 (no tagged fields)."""
    return struct.pack(">hhi", api_key, version, correlation_id) + text(client_id)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def varint(value: int) -> bytes:
    """Zigzag varint."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"\0" + varint(0) + varint(offset_delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(0)
    return varint(len(body)) + body


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Fields of a batch to be built; any of them may be a lie."""

    attributes: int = 0
    magic: int = 2
    timestamp: int = 1_700_000_000_000
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_offset_delta: int | None = None
    record_count: int | None = None
    length_error: int = 0
    crc_error: int = 0
    base_offset: int = 0


def build_batch(
    values: Sequence[bytes | None], shape: BatchShape | None = None, key: bytes | None = None
) -> bytes:
    """A batch of format v2, whole and right unless `shape` says otherwise."""
    shape = shape or BatchShape()
    records = b"".join(record(index, key, value) for index, value in enumerate(values))
    after_crc = struct.pack(
        ">hiqqqhii",
        shape.attributes,
        len(values) - 1 if shape.last_offset_delta is None else shape.last_offset_delta,
        shape.timestamp,
        shape.timestamp,
        shape.producer_id,
        shape.producer_epoch,
        shape.base_sequence,
        len(values) if shape.record_count is None else shape.record_count,
    )
    after_crc += records
    crc = (crc32c(after_crc) + shape.crc_error) & 0xFFFFFFFF
    length = 9 + len(after_crc) + shape.length_error
    return struct.pack(">qiibI", shape.base_offset, length, -1, shape.magic, crc) + after_crc


def batches_in(records: bytes) -> Iterator[Batch]:
    """The headers of the whole batches in what a Fetch answered."""
    position = 0
    while position + BATCH_HEADER.size <= len(records):
        batch = Batch(*BATCH_HEADER.unpack_from(records, position))
        position += batch.length + 12
        if position > len(records):
            return
        yield batch


def produce_body(
    topic: str, partition: int, records: bytes | None, acks: int = -1, timeout_ms: int = PRODUCE_TIMEOUT_MS
) -> bytes:
    """Produce v3 to v8."""
    size = -1 if records is None else len(records)
    head = text(None) + struct.pack(">hii", acks, timeout_ms, 1) + text(topic)
    return head + struct.pack(">iii", 1, partition, size) + (records or b"")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    max_wait_ms: int = 100
    min_bytes: int = 1
    max_bytes: int = 64 * 1024 * 1024
    partition_max_bytes: int = 64 * 1024 * 1024


def fetch_body(
    topic: str, partition: int, offset: int, limits: FetchLimits | None = None, leader_epoch: int = -1
) -> bytes:
    """Fetch v11 without a session, for one partition."""
    limits = limits or FetchLimits()
    head = struct.pack(">iiiibii", -1, limits.max_wait_ms, limits.min_bytes, limits.max_bytes, 0, 0, -1)
    head += struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1)
    head += struct.pack(">iiqqi", partition, leader_epoch, offset, -1, limits.partition_max_bytes)
    return head + struct.pack(">i", 0) + text("")


class RawClient:
    """One connection."""

    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._correlation_id = 0

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as gone:
            raise ConnectionClosed(str(gone)) from None

    def receive_frame(self) -> bytes:
        size = struct.unpack(">i", self._receive(4))[0]
        assert 0 <= size <= MAX_RESPONSE_BYTES, size
        return self._receive(size)

    def is_closed_by_peer(self) -> bool:
        """Waits for the broker's next move; True when it is to close, False when it answers or stays silent."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def request(self, api_key: int, version: int, body: bytes) -> bytes:
        """Sends a request with header v1 and returns the response's body after the correlation id."""
        self._correlation_id += 1
        self.send(frame(request_header(api_key, version, self._correlation_id) + body))
        answer = self.receive_frame()
        assert struct.unpack_from(">i", answer)[0] == self._correlation_id
        return answer[4:]

    def api_versions(self) -> dict[int, tuple[int, int]]:
        answer = self.request(API_VERSIONS, 0, b"")
        error, count = struct.unpack_from(">hi", answer)
        assert error == 0
        rows = struct.iter_unpack(">hhh", answer[6 : 6 + 6 * count])
        return {key: (lowest, highest) for key, lowest, highest in rows}

    def topic_error(self, topic: str, allow_auto_creation: bool) -> int:
        """What Metadata v4 says about a topic; the error code, 0 if it exists."""
        body = struct.pack(">i", 1) + text(topic) + (b"\1" if allow_auto_creation else b"\0")
        answer = self.request(METADATA, 4, body)
        # throttle, then brokers of (id, host, port, rack), cluster id, controller, topics
        position = 8
        for _ in range(struct.unpack_from(">i", answer, 4)[0]):
            position += 4
            position += 2 + struct.unpack_from(">h", answer, position)[0] + 4
            position += 2 + max(struct.unpack_from(">h", answer, position)[0], 0)
        position += 2 + max(struct.unpack_from(">h", answer, position)[0], 0) + 4
        count, error = struct.unpack_from(">ih", answer, position)
        assert count == 1
        return int(error)

    def produce(self, topic: str, partition: int, records: bytes | None, acks: int = -1) -> ProduceAnswer:
        answer = self.request(PRODUCE, PRODUCE_VERSION, produce_body(topic, partition, records, acks))
        position = 4 + 2 + len(topic.encode()) + 4
        _, error, base_offset, append_time, _ = struct.unpack_from(">ihqqq", answer, position)
        position += 30
        count = struct.unpack_from(">i", answer, position)[0]
        position += 4
        record_errors = []
        for _ in range(count):
            number, size = struct.unpack_from(">ih", answer, position)
            end = position + 6 + max(size, 0)
            record_errors.append((number, None if size < 0 else answer[position + 6 : end].decode()))
            position = end
        size = struct.unpack_from(">h", answer, position)[0]
        message = None if size < 0 else answer[position + 2 : position + 2 + size].decode()
        return ProduceAnswer(error, base_offset, append_time, message, tuple(record_errors))

    def fetch(self, topic: str, partition: int, offset: int, limits: FetchLimits | None = None) -> FetchAnswer:
        answer = self.request(FETCH, FETCH_VERSION, fetch_body(topic, partition, offset, limits))
        error = struct.unpack_from(">h", answer, 4)[0]
        assert error == 0, f"the whole Fetch failed with {error}"
        position = 4 + 2 + 4 + 4 + 2 + len(topic.encode()) + 4
        _, error, watermark, _, start, aborted = struct.unpack_from(">ihqqqi", answer, position)
        position += 34 + 16 * max(aborted, 0) + 4
        size = struct.unpack_from(">i", answer, position)[0]
        records = answer[position + 4 : position + 4 + max(size, 0)]
        return FetchAnswer(error, watermark, start, tuple(batches_in(records)), records)

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                data = self.socket.recv(min(size - len(parts), 1 << 20))
            except ConnectionResetError:
                raise ConnectionClosed("reset") from None
            if not data:
                raise ConnectionClosed(f"closed after {len(parts)} of {size} bytes")
            parts += data
        return bytes(parts)


def stored_batches(bootstrap: str, topic: str, partition: int = 0) -> list[Batch]:
    """The headers of every batch stored in a partition, from its first offset to its end."""
    found: list[Batch] = []
    offset = 0
    with RawClient(bootstrap) as client:
        while True:
            answer = client.fetch(topic, partition, offset)
            assert answer.error == 0, f"Fetch of {topic}-{partition} at {offset}: error {answer.error}"
            if not answer.batches:
                return found
            found += answer.batches
            offset = answer.batches[-1].base_offset + answer.batches[-1].last_offset_delta + 1

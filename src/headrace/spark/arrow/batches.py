"""From the bytes of a Fetch to stretches of records that can be looked through at once.

Each batch is checked against its CRC before anything in it is believed, and unfolded within a limit. Left out are
control batches, batches of aborted transactions, and what lies wholly outside the offsets asked for.

A `Piece` is one buffer with the sections of the batches in it: neighbours that are not compressed share one,
without a copy; a compressed batch has its own. A `Run` is a few pieces, at most RUN_BYTES or one batch: the unit
of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from crc32c import crc32c

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import (
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    parse_header,
)
from headrace.records.compression import Codec, decompress
from headrace.records.reader import SMALLEST_RECORD, read_records
from headrace.spark.arrow.layout import Bytes, Numbers

RUN_BYTES = 16 * 1024 * 1024
MAX_RUN_BYTES = 2**31 - 1
"""What the 32-bit offsets of an Arrow column can reach."""

ABORT_MARKER = 0
_MARKER_KEY_BYTES = 4


class RecordsChunk(Protocol):
    """What a Fetch brought."""

    @property
    def data(self) -> memoryview: ...

    @property
    def aborted(self) -> Sequence[tuple[int, int]]: ...

    @property
    def start(self) -> int: ...


class Piece(NamedTuple):
    data: Bytes
    sections: Numbers


@dataclass(slots=True)
class Run:
    pieces: list[Piece]
    record_count: int = 0
    size: int = 0


class Wanted(NamedTuple):
    """Which records: offsets in [start, end) of a partition; and how far a batch may unfold."""

    partition: TopicPartition
    start: int
    end: int
    max_decompressed: int


class _Batch(NamedTuple):
    position: int
    header: BatchHeader


def runs(chunk: RecordsChunk, wanted: Wanted) -> Iterator[Run]:
    """The records of a chunk in order, except for single ones outside the offsets, which are left in."""
    assert wanted.max_decompressed <= MAX_RUN_BYTES
    builder = _RunBuilder(np.frombuffer(chunk.data, np.uint8))
    for batch in _visible_batches(chunk, wanted):
        data, start, end = _records_of(chunk.data, batch, wanted)
        if builder.run.size and builder.run.size + end - start > RUN_BYTES:
            yield builder.take()
        builder.add(data, _section(batch.header, start, end), end - start)
    if builder.run.size:
        yield builder.take()


class _RunBuilder:
    def __init__(self, chunk: Bytes) -> None:
        self._chunk = chunk
        self._plain: list[tuple[int, ...]] = []
        """Sections of neighbours in the chunk itself."""
        self.run = Run([])

    def add(self, data: Bytes | None, section: tuple[int, ...], size: int) -> None:
        """`data` is None for a batch whose records stand in the chunk as they are."""
        if data is None:
            self._plain.append(section)
        else:
            self._close_plain()
            self.run.pieces.append(Piece(data, np.array([section], np.int64)))
        self.run.record_count += section[2]
        self.run.size += size

    def take(self) -> Run:
        self._close_plain()
        run, self.run = self.run, Run([])
        return run

    def _close_plain(self) -> None:
        if self._plain:
            self.run.pieces.append(Piece(self._chunk, np.array(self._plain, np.int64)))
            self._plain = []


def _section(header: BatchHeader, start: int, end: int) -> tuple[int, ...]:
    append_time = 1 if header.attributes & LOG_APPEND_TIME else 0
    times = (header.base_timestamp, append_time, header.max_timestamp)
    return (start, end, header.record_count, header.base_offset, *times)


def _records_of(chunk: memoryview, batch: _Batch, wanted: Wanted) -> tuple[Bytes | None, int, int]:
    header = batch.header
    start, end = batch.position + HEADER_SIZE, batch.position + header.size
    data: Bytes | None = None
    if header.codec != Codec.NONE:
        try:
            unfolded = decompress(header.codec, chunk[start:end], wanted.max_decompressed)
        except KafkaError as error:
            raise KafkaError(error.code, f"{_place(wanted.partition, header)}: {error.message}") from error
        data = np.frombuffer(unfolded, np.uint8)
        start, end = 0, len(data)
    if not 0 <= header.record_count <= (end - start) // SMALLEST_RECORD:
        problem = f"{header.record_count} records do not fit into {end - start} bytes"
        raise corrupt(wanted.partition, header.base_offset, problem)
    return data, start, end


def _visible_batches(chunk: RecordsChunk, wanted: Wanted) -> Iterator[_Batch]:
    aborted = _Aborted(chunk.aborted)
    for batch in _checked_batches(chunk.data, wanted):
        header = batch.header
        aborted.reach(header.last_offset)
        if header.attributes & CONTROL:
            if _is_abort_marker(chunk.data[batch.position : batch.position + header.size]):
                aborted.end(header.producer_id)
            continue
        if header.attributes & TRANSACTIONAL and header.producer_id in aborted.producers:
            continue
        emptied = header.record_count == 0 and header.size == HEADER_SIZE  # by compaction
        if header.last_offset >= wanted.start and not emptied:
            yield batch


def _checked_batches(data: memoryview, wanted: Wanted) -> Iterator[_Batch]:
    """Batches up to the last that begins before the end; each one's bytes are those that its CRC was made of."""
    position, stop = 0, len(data)
    while position < stop:
        if stop - position < HEADER_SIZE:
            raise corrupt(wanted.partition, wanted.start, f"{stop - position} bytes follow the last batch")
        header = parse_header(data, position)
        if header.base_offset >= wanted.end:
            return
        _check_header(header, stop - position, wanted.partition)
        end = position + header.size
        if crc32c(data[position + CRC_START : end]) != header.crc:
            raise corrupt(wanted.partition, header.base_offset, "the CRC does not match the bytes")
        yield _Batch(position, header)
        position = end


def _check_header(header: BatchHeader, left: int, partition: TopicPartition) -> None:
    if not HEADER_SIZE <= header.batch_length + LENGTH_OVERHEAD <= left:
        problem = f"a batch of {header.batch_length + LENGTH_OVERHEAD} bytes where {left} are left"
        raise corrupt(partition, header.base_offset, problem)
    if header.magic != MAGIC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{_place(partition, header)}: record batch format v{header.magic} cannot be read, only v{MAGIC}",
        )


class _Aborted:
    """Whose batches are not to be seen, while the batches of a chunk go by."""

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        self._ahead = sorted(transactions, key=lambda transaction: transaction[1], reverse=True)
        self.producers: set[int] = set()

    def reach(self, last_offset: int) -> None:
        while self._ahead and self._ahead[-1][1] <= last_offset:
            self.producers.add(self._ahead.pop()[0])

    def end(self, producer_id: int) -> None:
        self.producers.discard(producer_id)


def _is_abort_marker(batch: memoryview) -> bool:
    """A control record's key is its version and its type, two bytes each."""
    for record in read_records(batch):
        if record.key is not None and len(record.key) >= _MARKER_KEY_BYTES:
            return int.from_bytes(record.key[2:_MARKER_KEY_BYTES], "big") == ABORT_MARKER
    return False


def corrupt(partition: TopicPartition, offset: int, problem: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"partition {partition}, batch at offset {offset}: {problem}")


def _place(partition: TopicPartition, header: BatchHeader) -> str:
    return f"partition {partition}, batch at offset {header.base_offset}"

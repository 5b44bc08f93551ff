"""Turns the bytes of a Fetch into runs of records that can be indexed at once.

Each batch is checked against its CRC before anything in it is trusted, and decompressed within a limit. Left out
are control batches, batches of aborted transactions, and what lies wholly outside the offsets asked for.

A `BatchPiece` is one buffer with the sections of the batches in it: neighbours that are not compressed share one,
without a copy; a compressed batch has its own. A `BatchRun` is a few pieces, at most RUN_BYTES or one batch: the
unit of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import CODEC_MASK, CONTROL, HEADER_SIZE, LOG_APPEND_TIME, TRANSACTIONAL
from headrace.records.compression import Codec, decompress
from headrace.records.reader import SMALLEST_RECORD, read_records
from headrace.spark.arrow.headers import HeaderColumns, Wanted, checked_headers, corrupt, place
from headrace.spark.arrow.layout import (
    SECTION_APPEND_TIME,
    SECTION_APPEND_TIMESTAMP,
    SECTION_BASE_OFFSET,
    SECTION_BASE_TIMESTAMP,
    SECTION_END,
    SECTION_NUMBERS,
    SECTION_RECORDS,
    SECTION_START,
    Bytes,
    Numbers,
)

RUN_BYTES = 4 * 1024 * 1024
"""What goes through the processor's caches on its way to Spark instead of through memory."""
MAX_RUN_BYTES = 2**31 - 1
"""What the 32-bit offsets of an Arrow column can reach."""

ABORT_MARKER = 0
_MARKER_KEY_BYTES = 4


class RecordsChunk(Protocol):
    """The records of one Fetch response."""

    @property
    def data(self) -> memoryview: ...

    @property
    def aborted(self) -> Sequence[tuple[int, int]]: ...

    @property
    def start(self) -> int: ...


class BatchPiece(NamedTuple):
    data: Bytes
    sections: Numbers


@dataclass(slots=True)
class BatchRun:
    pieces: list[BatchPiece]
    record_count: int = 0
    size: int = 0

    def add(self, piece: BatchPiece, size: int) -> None:
        self.pieces.append(piece)
        self.record_count += int(piece.sections[:, SECTION_RECORDS].sum())
        self.size += size


def runs(chunk: RecordsChunk, wanted: Wanted) -> Iterator[BatchRun]:
    """The records of a chunk in order, except for single ones outside the offsets, which are left in."""
    assert wanted.max_decompressed <= MAX_RUN_BYTES
    headers = checked_headers(chunk.data, wanted)
    headers = headers.chosen(_visible(chunk, headers, wanted))
    run = BatchRun([])
    for piece, sizes in _pieces(chunk.data, headers, wanted):
        first, ends = 0, np.cumsum(sizes)
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, before + RUN_BYTES - run.size, side="right"))
            if last <= first and run.size:
                yield run
                run = BatchRun([])
                continue
            last = max(last, first + 1)
            run.add(BatchPiece(piece.data, piece.sections[first:last]), int(ends[last - 1]) - before)
            first = last
    if run.size:
        yield run


def _pieces(chunk: memoryview, headers: HeaderColumns, wanted: Wanted) -> Iterator[tuple[BatchPiece, Numbers]]:
    """Pieces with the sizes of their sections."""
    sections = _sections(headers)
    codecs = headers.fields["attributes"] & CODEC_MASK
    whole = np.frombuffer(chunk, np.uint8)
    cuts = np.flatnonzero((codecs[1:] != Codec.NONE) | (codecs[:-1] != Codec.NONE)) + 1
    for part in np.split(np.arange(len(codecs)), cuts):
        if not len(part):
            continue
        mine = sections[part[0] : part[-1] + 1]
        data = whole
        if codecs[part[0]] != Codec.NONE:
            data = _unfolded(chunk, int(codecs[part[0]]), mine[0], wanted)
        sizes = mine[:, SECTION_END] - mine[:, SECTION_START]
        _check_counts(mine, sizes, wanted.partition)
        yield BatchPiece(data, mine), sizes


def _sections(headers: HeaderColumns) -> Numbers:
    found = np.empty((len(headers.at), SECTION_NUMBERS), np.int64)
    found[:, SECTION_START] = headers.at + HEADER_SIZE
    found[:, SECTION_END] = headers.ends
    found[:, SECTION_RECORDS] = headers.fields["record_count"]
    found[:, SECTION_BASE_OFFSET] = headers.fields["base_offset"]
    found[:, SECTION_BASE_TIMESTAMP] = headers.fields["base_timestamp"]
    found[:, SECTION_APPEND_TIME] = (headers.fields["attributes"] & LOG_APPEND_TIME) != 0
    found[:, SECTION_APPEND_TIMESTAMP] = headers.fields["max_timestamp"]
    return found


def _unfolded(chunk: memoryview, codec: int, section: Numbers, wanted: Wanted) -> Bytes:
    """The records of a compressed batch, and its section adjusted to them."""
    packed = chunk[int(section[SECTION_START]) : int(section[SECTION_END])]
    try:
        data = np.frombuffer(decompress(codec, packed, wanted.max_decompressed), np.uint8)
    except KafkaError as error:
        where = place(wanted.partition, int(section[SECTION_BASE_OFFSET]))
        raise KafkaError(error.code, f"{where}: {error.message}") from error
    section[SECTION_START], section[SECTION_END] = 0, len(data)
    return data


def _check_counts(sections: Numbers, sizes: Numbers, partition: TopicPartition) -> None:
    counts = sections[:, SECTION_RECORDS]
    wrong = np.flatnonzero((counts < 0) | (counts > sizes // SMALLEST_RECORD))
    if len(wrong):
        first = wrong[0]
        problem = f"{counts[first]} records do not fit into {sizes[first]} bytes"
        raise corrupt(partition, int(sections[first, SECTION_BASE_OFFSET]), problem)


def _visible(chunk: RecordsChunk, headers: HeaderColumns, wanted: Wanted) -> NDArray[np.bool_]:
    fields = headers.fields
    # The delta on the other side: an offset at the end of its range and a delta must not be added.
    visible: NDArray[np.bool_] = fields["base_offset"] >= wanted.start - headers.numbers("last_offset_delta")
    visible &= (fields["attributes"] & CONTROL) == 0
    visible &= (fields["record_count"] != 0) | (headers.ends - headers.at != HEADER_SIZE)  # emptied by compaction
    if chunk.aborted:
        visible[list(batches_of_aborted(chunk, headers))] = False
    return visible


def batches_of_aborted(chunk: RecordsChunk, headers: HeaderColumns) -> Iterator[int]:
    """Numbers of batches that belong to aborted transactions."""
    aborted = _Aborted(chunk.aborted)
    names = ("base_offset", "last_offset_delta", "attributes", "producer_id")
    ends = headers.ends
    for index, numbers in enumerate(zip(*(headers.fields[name].tolist() for name in names), strict=True)):
        base_offset, delta, attributes, producer_id = numbers
        aborted.reach(base_offset + delta)
        if attributes & CONTROL:
            if _is_abort_marker(chunk.data[int(headers.at[index]) : int(ends[index])]):
                aborted.end(producer_id)
        elif attributes & TRANSACTIONAL and producer_id in aborted.producers:
            yield index


class _Aborted:
    """The producers whose batches are aborted at each point of a chunk."""

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

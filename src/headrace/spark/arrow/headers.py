"""The headers of all record batches of a chunk, as columns.

There are sixty thousand batches in a gigabyte that a producer with default settings wrote: what Python does for
each of them costs more than everything that is done to their bytes. So it only steps from one to the next and
checks its CRC; the rest is read by numpy for all at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import (
    BASE_OFFSET_AND_LENGTH,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
)
from headrace.spark.arrow.layout import Numbers

_NUMPY_TYPES = {"q": "i8", "i": "i4", "I": "u4", "h": "i2", "b": "i1"}
HEADER_TYPE = np.dtype(
    [(name, f">{_NUMPY_TYPES[kind]}") for name, kind in zip(BatchHeader._fields, HEADER.format[1:], strict=True)]
)
"""`records.batch.HEADER` for numpy."""
assert HEADER_TYPE.itemsize == HEADER_SIZE
_HEADER_BYTES = np.arange(HEADER_SIZE)


class Wanted(NamedTuple):
    """The wanted records: offsets in [start, end) of a partition; and how far a batch may expand."""

    partition: TopicPartition
    start: int
    end: int
    max_decompressed: int


class HeaderColumns(NamedTuple):
    at: Numbers
    """The position of each batch."""
    fields: NDArray[Any]
    """The headers, in an array of HEADER_TYPE."""

    def numbers(self, name: str) -> Numbers:
        return self.fields[name].astype(np.int64)

    @property
    def ends(self) -> Numbers:
        return self.at + self.numbers("batch_length") + LENGTH_OVERHEAD

    def chosen(self, which: NDArray[np.bool_]) -> HeaderColumns:
        return HeaderColumns(self.at[which], self.fields[which])


def checked_headers(data: memoryview, wanted: Wanted) -> HeaderColumns:
    """The headers of the batches that begin before the end, with their CRCs checked."""
    positions, problem = _step_through(data, wanted)
    headers = _read_headers(data, positions)
    other_formats = np.flatnonzero(headers.fields["magic"] != MAGIC)
    if len(other_formats):
        first = int(other_formats[0])
        problem = _other_format(wanted.partition, headers.fields[first])
        headers = HeaderColumns(headers.at[:first], headers.fields[:first])
    _check_bytes(data, headers, wanted.partition)
    if problem is not None:
        raise problem
    return headers


def _step_through(data: memoryview, wanted: Wanted) -> tuple[list[int], KafkaError | None]:
    """The positions of the batches, and the error that ended the stepping from one to the next."""
    positions: list[int] = []
    position, stop = 0, len(data)
    unpack = BASE_OFFSET_AND_LENGTH.unpack_from
    while position < stop:
        left = stop - position
        if left < HEADER_SIZE:
            return positions, corrupt(wanted.partition, wanted.start, f"{left} bytes follow the last batch")
        base_offset, length = unpack(data, position)
        if base_offset >= wanted.end:
            break
        size = length + LENGTH_OVERHEAD
        if not HEADER_SIZE <= size <= left:
            problem = f"a batch of {size} bytes where {left} are left"
            return positions, corrupt(wanted.partition, base_offset, problem)
        positions.append(position)
        position += size
    return positions, None


def unchecked_headers(data: memoryview, wanted: Wanted) -> HeaderColumns:
    """The same without checks, for callers whose decoder finds the errors."""
    return _read_headers(data, _step_through(data, wanted)[0])


def _read_headers(data: memoryview, positions: list[int]) -> HeaderColumns:
    at = np.array(positions, np.int64)
    raw = np.frombuffer(data, np.uint8)[at[:, np.newaxis] + _HEADER_BYTES]
    return HeaderColumns(at, raw.view(HEADER_TYPE).reshape(len(at)))


def _check_bytes(data: memoryview, headers: HeaderColumns, partition: TopicPartition) -> None:
    starts, ends = (headers.at + CRC_START).tolist(), headers.ends.tolist()
    for index, expected in enumerate(headers.fields["crc"].tolist()):
        if crc32c(data[starts[index] : ends[index]]) != expected:
            offset = int(headers.fields["base_offset"][index])
            raise corrupt(partition, offset, "the CRC does not match the bytes")


def _other_format(partition: TopicPartition, fields: Any) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        f"{place(partition, int(fields['base_offset']))}: record batch format v{fields['magic']} cannot be read, "
        f"only v{MAGIC}",
    )


def corrupt(partition: TopicPartition, offset: int, problem: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{place(partition, offset)}: {problem}")


def place(partition: TopicPartition, offset: int) -> str:
    return f"partition {partition}, batch at offset {offset}"

"""Arrow arrays of bytes and lists as positions and lengths; only the offsets are copied.

Slices are honoured: an array may begin in the middle of its buffers. Both the usual and the large (64-bit) types
are read, and text as its UTF-8 bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from headrace.spark.arrow.layout import NULL_LENGTH, Bytes, Numbers


class RecordFields(NamedTuple):
    data: Bytes
    at: Numbers
    lengths: Numbers


def field_table(array: pa.Array) -> RecordFields:
    """The position and length of each row's bytes; a length of -1 for null."""
    if pat.is_null(array.type):
        return RecordFields(
            np.empty(0, np.uint8), np.zeros(len(array), np.int64), np.full(len(array), NULL_LENGTH)
        )
    kind: type[np.int32] | type[np.int64]
    if pat.is_binary(array.type) or pat.is_string(array.type):
        kind = np.int32
    elif pat.is_large_binary(array.type) or pat.is_large_string(array.type):
        kind = np.int64
    else:
        raise TypeError(f"bytes or text expected, not {array.type}")
    at, lengths = _bounds(array, kind)
    lengths[~valid_rows(array)] = NULL_LENGTH
    return RecordFields(_bytes_of(array.buffers()[2]), at, lengths)


def list_bounds(array: pa.Array) -> tuple[Numbers, Numbers, pa.Array]:
    """For a list array, where each row's elements begin, how many there are (0 for null), and all elements."""
    at, counts = _bounds(array, np.int64 if pat.is_large_list(array.type) else np.int32)
    counts[~valid_rows(array)] = 0
    assert isinstance(array, pa.ListArray | pa.LargeListArray)
    return at, counts, array.values


def valid_rows(array: pa.Array) -> NDArray[np.bool_]:
    bitmap = array.buffers()[0]
    if bitmap is None or not array.null_count:
        return np.ones(len(array), np.bool_)
    start, end = array.offset, array.offset + len(array)
    bits = np.unpackbits(_bytes_of(bitmap), count=end, bitorder="little")
    return bits[start:].astype(np.bool_)


def _bounds(array: pa.Array, kind: type[np.int32] | type[np.int64]) -> tuple[Numbers, Numbers]:
    if not len(array):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets: NDArray[Any] = np.frombuffer(_bytes_of(array.buffers()[1]), kind)
    own = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return own[:-1], own[1:] - own[:-1]


def _bytes_of(buffer: pa.Buffer | None) -> Bytes:
    return np.frombuffer(memoryview(buffer), np.uint8) if buffer is not None else np.empty(0, np.uint8)

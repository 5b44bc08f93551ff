"""What becomes of every offset of a partition: a row, a marker, a record of an aborted transaction, or nothing.

The decoder leaves out what a reader must not see. The same chunks go past an `Account` first, which notes by the
headers of their batches what that will be. An offset that is neither a row nor noted was compacted away. Where
headers state the number of records, the number of decoded rows must match it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.model.topics import TopicPartition
from headrace.records.batch import CONTROL
from headrace.records.compression import MAX_DECOMPRESSED_BYTES
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.arrow.batches import batches_of_aborted
from headrace.spark.arrow.headers import Wanted, unchecked_headers
from headrace.spark.arrow.layout import Numbers
from headrace.spark.client.fetching import Chunk

DATA, MARKER, ABORTED = 0, 1, 2


class OffsetCounts(NamedTuple):
    """The counts of a range of offsets."""

    markers: int
    aborted: int
    records: int | None
    """The number of records that its batches state; None where a batch crosses a bound of the range."""


@dataclass(frozen=True, slots=True)
class _Batches:
    first: Numbers
    end: Numbers
    kind: NDArray[np.int8]
    records: Numbers

    def after(self, offset: int) -> _Batches | None:
        left = self.end > offset
        if not left.any():
            return None
        return _Batches(self.first[left], self.end[left], self.kind[left], self.records[left])


class Account:
    """The account of one partition, while it is read from `start` on."""

    def __init__(self, partition: TopicPartition, start: int, end: int) -> None:
        self._partition = partition
        self._position = start
        self._end = end
        self._noted: list[_Batches] = []

    def watched(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Passes the chunks on unchanged, and notes what is in them."""
        for chunk in chunks:
            self._note(chunk)
            yield chunk

    def take(self, end: int, rows: int) -> OffsetCounts:
        """The counts of the offsets since the last call, up to `end`; `rows` of them were decoded."""
        start, self._position = self._position, end
        counts = self._counts(start, end)
        if counts.records is not None and counts.records != rows:
            raise ArchiveError(
                f"{self._partition}: the batches from offset {start} to {end - 1} state {counts.records} records, "
                f"but {rows} were read."
            )
        self._noted = [rest for one in self._noted if (rest := one.after(end)) is not None]
        return counts

    def _note(self, chunk: Chunk) -> None:
        wanted = Wanted(self._partition, chunk.start, self._end, MAX_DECOMPRESSED_BYTES)
        headers = unchecked_headers(chunk.data, wanted)
        first = headers.numbers("base_offset")
        kind = np.where((headers.fields["attributes"] & CONTROL) != 0, MARKER, DATA).astype(np.int8)
        if chunk.aborted:
            kind[list(batches_of_aborted(chunk, headers))] = ABORTED
        end = first + headers.numbers("last_offset_delta") + 1
        new = end > chunk.start  # a batch that begins before it was noted with the previous chunk
        records = headers.numbers("record_count")
        self._noted.append(_Batches(first[new], end[new], kind[new], records[new]))

    def _counts(self, start: int, end: int) -> OffsetCounts:
        markers = aborted = records = 0
        whole = True
        for noted in self._noted:
            lengths = np.minimum(noted.end, end) - np.maximum(noted.first, start)
            inside = lengths > 0
            markers += int(lengths[inside & (noted.kind == MARKER)].sum())
            aborted += int(lengths[inside & (noted.kind == ABORTED)].sum())
            data = inside & (noted.kind == DATA)
            records += int(noted.records[data].sum())
            whole = whole and bool((noted.first[data] >= start).all() and (noted.end[data] <= end).all())
        return OffsetCounts(markers, aborted, records if whole else None)

"""One cleaning of one log, from request to report. Blocking and hungry for CPU: it runs in a process of its own.

Two passes: the dirty part is read into the offset map, then all segments up to where the map got are copied,
several small ones into one. Every batch is checked against its CRC before it is copied or rewritten, so that
damage is never sealed with a fresh checksum. Only `.cleaned` files are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.env import Disk
from headrace.env.env import READ_ONLY
from headrace.model.errors import KafkaError
from headrace.records.batch import CONTROL, HEADER_SIZE, BatchHeader, parse_header
from headrace.records.reader import records_data
from headrace.storage.compaction.batches import BatchFilter, ProducerEnd
from headrace.storage.compaction.layout import MalformedRecords, record_layout
from headrace.storage.compaction.messages import CleanedGroup, CleaningReport, CleaningRequest, SegmentToClean
from headrace.storage.compaction.offset_map import OffsetMap
from headrace.storage.compaction.output import CleanedOutput
from headrace.storage.compaction.transactions import TransactionView
from headrace.storage.files import OpenFile
from headrace.storage.scan import Expectation, scan_verified
from headrace.storage.segment import INDEX, LOG, MAX_RELATIVE_OFFSET, TIME_INDEX, TRANSACTION_INDEX, file_name
from headrace.storage.segment_index import load_index
from headrace.storage.transaction_index import AbortedTransaction, read_transaction_index

MAX_GROUP_SEGMENTS = 64
"""The limit of segments per group, so that the broker's loop never has thousands of files to rename at once."""
PACE_BYTES = 1024 * 1024

Pace = Callable[[int], None]
"""Called with bytes read or written; sleeps if there is a limit, and ends the process when it should."""


class DamagedSegment(Exception):
    """A segment holds bytes that are not a valid batch. A person must decide what to do."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The process as seen from outside: the time, and the peak of its memory."""

    monotonic: Callable[[], float]
    peak_memory_bytes: Callable[[], int]


def clean(
    request: CleaningRequest, disk: Disk, pace: Pace, usage: Usage
) -> Iterator[CleanedGroup | CleaningReport]:
    """Yields the new segments, each as soon as it is complete, and finally the report."""
    started = usage.monotonic()
    work = _Cleaning(request, disk, pace)
    offset_map = work.build_map()
    end_offset = offset_map.latest_offset + 1
    groups = []
    for group in work.cleaned_groups(offset_map, end_offset):
        groups.append(group)
        yield group
    counts = work.counts
    yield CleaningReport(
        end_offset=end_offset,
        keys=len(offset_map),
        map_utilization=offset_map.utilization,
        records_in=counts.records_in,
        records_out=counts.records_out,
        tombstones_dropped=counts.tombstones_dropped,
        batches_rebuilt=counts.batches_rebuilt,
        batches_unread=counts.batches_unread,
        bytes_in=sum(group.size_before for group in groups),
        bytes_out=sum(group.size for group in groups),
        seconds=usage.monotonic() - started,
        peak_memory_bytes=usage.peak_memory_bytes(),
    )


class _Cleaning:
    def __init__(self, request: CleaningRequest, disk: Disk, pace: Pace) -> None:
        self._request = request
        self._disk = disk
        self._pace = pace
        self._unpaced = 0
        self._aborted = self._load_aborted()

    def _load_aborted(self) -> list[AbortedTransaction]:
        request = self._request
        bases = [*(source.base_offset for source in request.sources), *request.later_segments]
        paths = (f"{request.directory}/{file_name(base, TRANSACTION_INDEX)}" for base in bases)
        return [entry for path in paths for entry in read_transaction_index(self._disk, path)]

    # Reading

    def _spend(self, size: int) -> None:
        self._unpaced += size
        if self._unpaced >= PACE_BYTES:
            self._pace(self._unpaced)
            self._unpaced = 0

    def _path(self, source: SegmentToClean, suffix: str) -> str:
        return f"{self._request.directory}/{file_name(source.base_offset, suffix)}"

    def _batches(
        self, source: SegmentToClean, file: OpenFile, from_offset: int = 0
    ) -> Iterator[tuple[BatchHeader, memoryview, int]]:
        """Every batch from the one that holds `from_offset`, and where it ends. Damage is an error."""
        position = self._position_of(source, file, from_offset)
        expected = Expectation(source.base_offset, -1, gaps_allowed=True)
        for start, header, batch in scan_verified(self._disk, file.fd, position, source.size, expected):
            position = start + len(batch)
            self._spend(len(batch))
            if header.last_offset >= from_offset:
                yield header, batch, position
        if position != source.size:
            raise DamagedSegment(
                f"{self._path(source, LOG)} has no valid batch at position {position} of {source.size}"
            )

    def _position_of(self, source: SegmentToClean, file: OpenFile, offset: int) -> int:
        """Where to begin to look for an offset: a position from the index, if the batch is really there."""
        if offset <= source.base_offset:
            return 0
        index = load_index(self._disk, self._path(source, INDEX), self._path(source, TIME_INDEX), source.size)
        if index is None:
            return 0
        relative, position = index.position_before(offset - source.base_offset)
        data = self._disk.pread(file.fd, HEADER_SIZE, position)
        if relative < 0 or len(data) < HEADER_SIZE:
            return 0
        return position if parse_header(data).last_offset == source.base_offset + relative else 0

    # First pass

    def build_map(self) -> OffsetMap:
        """A map of the last offset of every key in the dirty part, as far as memory allows."""
        request = self._request
        dirty, upper = request.dirty_offset, request.upper_offset
        offset_map = OffsetMap(request.memory_bytes, upper - dirty, dirty - 1)
        transactions = TransactionView(self._aborted)
        for source in request.sources:
            if source.end_offset <= dirty:
                continue
            if not self._map_segment(offset_map, source, transactions):
                break
            # Nothing is left between the last batch of a segment and the next one.
            offset_map.latest_offset = max(offset_map.latest_offset, min(source.end_offset, upper) - 1)
        return offset_map

    def _map_segment(self, offset_map: OffsetMap, source: SegmentToClean, transactions: TransactionView) -> bool:
        """Add a segment to the map; False if the map has no room for the next batch."""
        dirty = self._request.dirty_offset
        file = OpenFile(self._disk, self._path(source, LOG), READ_ONLY)
        for header, batch, _ in self._batches(source, file, dirty):
            if header.attributes & CONTROL:
                transactions.is_spent(header, batch)
            elif header.record_count and not transactions.is_aborted(header):
                keys = self._keys(header, batch)
                if len(keys) > offset_map.room and len(dict(keys)) > offset_map.room:
                    if len(offset_map):
                        return False
                    # More keys in one batch than the map holds: its records never count as the last ones.
                    keys = []
                offset_map.put_all(keys)
            offset_map.latest_offset = max(offset_map.latest_offset, header.last_offset)
        return True

    def _keys(self, header: BatchHeader, batch: memoryview) -> list[tuple[bytes, int]]:
        """(key, offset) of the dirty records of a batch; none if it cannot be read."""
        try:
            data = bytes(records_data(header, batch, self._request.decompressed_bytes))
            places = record_layout(data, header.record_count, header.last_offset_delta)
        except (KafkaError, MalformedRecords):
            return []
        base, dirty = header.base_offset, self._request.dirty_offset
        return [(key, base + delta) for key, delta, _, _, _ in places if key is not None and base + delta >= dirty]

    # Second pass

    def cleaned_groups(self, offset_map: OffsetMap, end_offset: int) -> Iterator[CleanedGroup]:
        request = self._request
        producers = {row[0]: ProducerEnd(row[1], row[2]) for row in request.producers}
        transactions = TransactionView(self._aborted)
        rules = BatchFilter(
            offset_map,
            transactions,
            producers,
            request.now_ms,
            request.delete_retention_ms,
            request.decompressed_bytes,
        )
        self.counts = rules.counts
        for group in self._groups(end_offset):
            yield self._clean_group(group, rules, transactions)

    def _groups(self, end_offset: int) -> Iterator[list[SegmentToClean]]:
        """Groups of consecutive segments that together are no larger than one may be."""
        request = self._request
        group: list[SegmentToClean] = []
        size = index_size = time_size = 0
        for source in request.sources:
            if source.base_offset >= end_offset:
                break
            own_index, own_time = self._file_size(source, INDEX), self._file_size(source, TIME_INDEX)
            if group and (
                len(group) >= MAX_GROUP_SEGMENTS
                or size + source.size > request.segment_bytes
                or index_size + own_index > request.segment_index_bytes
                or time_size + own_time > request.segment_index_bytes
                or source.end_offset - 1 - group[0].base_offset > MAX_RELATIVE_OFFSET
            ):
                yield group
                group, size, index_size, time_size = [], 0, 0, 0
            group.append(source)
            size, index_size, time_size = size + source.size, index_size + own_index, time_size + own_time
        if group:
            yield group

    def _file_size(self, source: SegmentToClean, suffix: str) -> int:
        path = self._path(source, suffix)
        return self._disk.file_size(path) if self._disk.exists(path) else 0

    def _clean_group(
        self, group: list[SegmentToClean], rules: BatchFilter, transactions: TransactionView
    ) -> CleanedGroup:
        request = self._request
        files = [OpenFile(self._disk, self._path(source, LOG), READ_ONLY) for source in group]
        original = files[0] if len(group) == 1 else None
        base_offset = group[0].base_offset
        output = CleanedOutput(self._disk, request.directory, base_offset, request.index_interval_bytes, original)
        last = max((number for number, source in enumerate(group) if source.size), default=0)
        for number, (source, file) in enumerate(zip(group, files, strict=True)):
            for header, batch, end in self._batches(source, file):
                kept = rules.apply(header, batch, is_last=number == last and end == source.size)
                if kept is not batch:
                    self._spend(output.differ())
                if kept is not None:
                    output.add(header if kept is batch else parse_header(kept), kept)
                    if output.is_written:
                        self._spend(len(kept))
        aborted, transactions.kept = transactions.kept, []
        if output.is_written:
            output.finish(aborted)
        return CleanedGroup(
            base_offset=base_offset,
            sources=tuple(source.base_offset for source in group),
            size=output.size,
            size_before=sum(source.size for source in group),
            changed=output.is_written,
        )

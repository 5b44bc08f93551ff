"""A `.cleaned` segment being written: batches, offset index, time index, and transactions where there are any.

Files are made and never opened again: a worker that has outlived its broker cannot write into what another one
makes under the same name. While a single source is copied without a change nothing is written at all.
"""

from __future__ import annotations

from headrace.env import Disk
from headrace.env.env import CREATE, EXCLUSIVE, READ_WRITE
from headrace.records.batch import BatchHeader
from headrace.storage.files import OpenFile, write_at
from headrace.storage.segment import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, Segment
from headrace.storage.segment_index import SegmentIndex
from headrace.storage.transaction_index import AbortedTransaction, encode_transaction_index

CLEANED = ".cleaned"
WRITE_BYTES = 4 * 1024 * 1024


class CleanedOutput:
    __slots__ = ("_disk", "_file", "_interval", "_original", "_parts", "_pending", "_segment", "size")

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int, original: OpenFile | None
    ) -> None:
        """`original` is the only source, where there is only one."""
        self._disk = disk
        self._interval = index_interval_bytes
        self._segment = Segment(directory, base_offset)
        self._original = original
        self._file: OpenFile | None = None
        if original is None:
            self._open()
        self._parts: list[bytes | bytearray | memoryview] = []
        self._pending = 0
        self.size = 0

    @property
    def is_written(self) -> bool:
        return self._file is not None

    def _open(self) -> OpenFile:
        path = self._segment.path(LOG) + CLEANED
        self._file = OpenFile(self._disk, path, READ_WRITE | CREATE | EXCLUSIVE)
        return self._file

    def add(self, header: BatchHeader, batch: bytes | bytearray | memoryview) -> None:
        """`header` may be of before the batch was rebuilt, but for its largest timestamp."""
        self._segment.note_append(header, header.last_offset, self.size, self._interval)
        size = len(batch)
        self.size += size
        if self._file is None:
            return
        self._parts.append(batch)
        self._pending += size
        if self._pending >= WRITE_BYTES:
            self._write()

    def differ(self) -> int:
        """From here on the output is not what the source is. How many bytes had to be copied for that."""
        if self._file is not None:
            return 0
        assert self._original is not None
        file = self._open()
        position = 0
        while position < self.size:
            data = self._disk.pread(self._original.fd, min(WRITE_BYTES, self.size - position), position)
            _write_fully(self._disk, file.fd, data, position)
            position += len(data)
        return position

    def _write(self) -> None:
        assert self._file is not None
        if self._pending:
            _write_fully(self._disk, self._file.fd, b"".join(self._parts), self.size - self._pending)
        self._parts, self._pending = [], 0

    def finish(self, aborted: list[AbortedTransaction]) -> None:
        """Everything onto the device: after this the new segment can stand for its sources."""
        assert self._file is not None
        self._write()
        self._disk.fdatasync(self._file.fd)
        segment = self._segment
        index = segment.index or SegmentIndex()
        if segment.max_timestamp >= 0:
            index.add_time(segment.max_timestamp, segment.max_timestamp_offset - segment.base_offset)
        index.save(self._disk, segment.path(INDEX) + CLEANED, segment.path(TIME_INDEX) + CLEANED, sync=True)
        if aborted:
            data = encode_transaction_index(aborted)
            write_at(self._disk, segment.path(TRANSACTION_INDEX) + CLEANED, 0, data, sync=True)


def _write_fully(disk: Disk, fd: int, data: bytes, position: int) -> None:
    rest = memoryview(data)
    while rest:
        written = disk.pwrite(fd, rest, position)
        if written <= 0:
            raise OSError(f"nothing of {len(rest)} bytes was written at {position}")
        rest, position = rest[written:], position + written

"""All records that were ever committed, and the check that every replica agrees.

As soon as any replica's high watermark covers a batch, that batch is committed: these offsets hold these bytes
forever, on every replica, for every reader (unclean election is off). The ledger takes it from the first replica
that says so and compares all others, and everything that clients were told, with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.model.topics import TopicPartition
from headrace.records.batch import CONTROL, HEADER_SIZE, TRANSACTIONAL, parse_header
from headrace.records.markers import COMMIT, read_marker
from headrace.records.reader import Record, read_records
from headrace.replication.partition import Partition
from headrace.storage.log import Log

READ_BYTES = 1 << 20
Key = tuple[bytes, int]
"""Topic id and partition: a topic that is created again is another."""


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    data: bytes


class Committed:
    """The committed records of one partition."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.batches: dict[int, Batch] = {}
        """Batches by their first offset; in a compacted log, as they were last seen."""
        self.end_offset = 0
        self.values: dict[int, bytes] = {}
        """The values by offset."""
        self.offsets: dict[bytes, int] = {}
        self.latest: dict[bytes, int] = {}
        """The offset of the last value of each key. Compaction keeps these; a tombstone is removed eventually."""
        self._newest: dict[bytes, int] = {}
        """The same with tombstones."""
        self._open: dict[int, list[Record]] = {}
        """Records by producer that count if their transaction is committed."""
        self.holes: list[tuple[int, int]] = []
        """Offsets that were deleted on all replicas before anybody had seen them."""

    def add_compacted(self, batch: Batch) -> str | None:
        """Add a batch of a compacted log: records may be missing, but none may differ. Returns the problem."""
        if self.batches.get(batch.base_offset) == batch:
            return None
        header = parse_header(batch.data)
        for record in read_records(batch.data):
            value = bytes(record.value or b"")
            if self.values.setdefault(record.offset, value) != value:
                return f"offset {record.offset} holds {value!r} and {self.values[record.offset]!r}"
            if record.offset < self.end_offset or record.key is None:
                continue
            if header.attributes & CONTROL:
                self._end(header.producer_id, read_marker(batch.data)[0] == COMMIT)
            elif header.attributes & TRANSACTIONAL:
                self._open.setdefault(header.producer_id, []).append(record)
            else:
                self._count(record)
        self.end_offset = max(self.end_offset, batch.end_offset)
        self.batches[batch.base_offset] = batch
        return None

    def _end(self, producer_id: int, committed: bool) -> None:
        for record in self._open.pop(producer_id, []):
            if committed:
                self._count(record)

    def _count(self, record: Record) -> None:
        """Count a record where it was written, not where its transaction ended: the highest offset wins."""
        assert record.key is not None
        key = bytes(record.key)
        if record.offset > self._newest.get(key, -1):
            self._newest[key] = record.offset
            self.latest.pop(key, None)
            if record.value is not None:
                self.latest[key] = record.offset

    def add(self, batch: Batch) -> str | None:
        """Add a batch; returns the problem with it, if there is one."""
        known = self.batches.get(batch.base_offset)
        if known is not None:
            return None if known.data == batch.data else f"offset {batch.base_offset} holds two different batches"
        if batch.base_offset < self.end_offset and not self.is_hole(batch.base_offset):
            return f"a batch begins at {batch.base_offset}, inside another"
        if batch.base_offset > self.end_offset:
            return f"offsets {self.end_offset} to {batch.base_offset} were skipped"
        self.batches[batch.base_offset] = batch
        self.end_offset = max(self.end_offset, batch.end_offset)
        if parse_header(batch.data).attributes & CONTROL:
            return None
        problem = None
        for record in read_records(batch.data):
            value = bytes(record.value or b"")
            if value and not self.name.topic.startswith("__"):
                if value in self.offsets:
                    problem = f"{value!r} is at {self.offsets[value]} and at {record.offset}"
                self.offsets[value] = record.offset
            self.values[record.offset] = value
        return problem

    def skip_to(self, offset: int) -> None:
        """Note that everything before `offset` is gone, and nobody saw it."""
        if offset > self.end_offset:
            self.holes.append((self.end_offset, offset))
            self.end_offset = offset

    def is_hole(self, offset: int) -> bool:
        return any(first <= offset < end for first, end in self.holes)


def batches_of(log: Log, start: int, end: int) -> Iterator[Batch]:
    """The batches of a log between two offsets, which are ends of batches."""
    while start < end:
        found = log.read(start, READ_BYTES, end, at_least_one=True)
        if found is None:
            return
        data = found.file.read(found.size, found.position)
        position = 0
        while position + HEADER_SIZE <= len(data):
            header = parse_header(data[position : position + HEADER_SIZE])
            size = header.batch_length + 12
            if position + size > len(data) or header.base_offset >= end:
                break
            yield Batch(header.base_offset, header.last_offset + 1, data[position : position + size])
            start = header.last_offset + 1
            position += size
        if position == 0:
            return


class Ledger:
    def __init__(self) -> None:
        self.partitions: dict[Key, Committed] = {}
        self.trimmed: frozenset[str] = frozenset()
        """Topics whose records are deleted at the start."""
        self.compacted: frozenset[str] = frozenset()
        """Topics that are compacted from time to time."""

    def is_compacted(self, partition: Partition) -> bool:
        return partition.log.config.compacted or partition.topic_partition.topic in self.compacted

    def of(self, partition: Partition) -> Committed:
        key = partition.topic_id, partition.topic_partition.partition
        found = self.partitions.get(key)
        if found is None:
            found = self.partitions[key] = Committed(partition.topic_partition)
        return found

    def by_name(self, name: TopicPartition) -> Committed | None:
        """The latest partition of that name."""
        return next((one for one in reversed(self.partitions.values()) if one.name == name), None)

    def lacking(self, partition: Partition) -> str | None:
        """The problem with a replica of a compacted log that lacks the last record of a key."""
        committed = self.of(partition)
        log = partition.log
        there = {
            record.offset
            for batch in batches_of(log, log.start_offset, log.end_offset)
            for record in read_records(batch.data)
        }
        first = log.start_offset if partition.topic_partition.topic in self.trimmed else 0
        lost = {key: at for key, at in committed.latest.items() if at not in there and at >= first}
        return f"the last records of {lost} are missing" if lost else None

    def check(self, partition: Partition, start: int) -> str | None:
        """Compare the records that this replica considers committed, from `start` on, with the ledger."""
        committed, log_start = self.of(partition), partition.log.start_offset
        is_compacted = self.is_compacted(partition)
        is_trimmed = partition.topic_partition.topic in self.trimmed and not is_compacted
        for batch in batches_of(partition.log, max(start, log_start), partition.high_watermark):
            if is_trimmed and batch.base_offset <= log_start:
                committed.skip_to(batch.base_offset)
            problem = committed.add_compacted(batch) if is_compacted else committed.add(batch)
            if problem is not None:
                return problem
        if is_trimmed:
            committed.skip_to(log_start)
        return None

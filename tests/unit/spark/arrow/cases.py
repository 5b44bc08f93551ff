"""Logs made of random batches, and what a reader of single records finds in them: the truth to compare with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from headrace.model.topics import TopicPartition
from headrace.records.batch import CONTROL, HEADER, HEADER_SIZE, LOG_APPEND_TIME, TRANSACTIONAL, parse_header
from headrace.records.builder import NewRecord, ProducerStamp, assemble, build_batch, seal
from headrace.records.compression import Codec
from headrace.records.reader import Record, read_records, records_data
from headrace.spark.arrow import kernels, pure
from headrace.spark.arrow.columns import ALL_COLUMNS
from headrace.spark.arrow.decode import decode
from headrace.spark.arrow.engine import Engine

PARTITION = TopicPartition("some.topic", 7)
EVERYTHING = 2**62
LARGEST_MS = (2**63 - 1) // 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

both_engines = pytest.mark.parametrize("loops", [kernels, pure], ids=["compiled", "pure"])

some_bytes = st.none() | st.binary(max_size=40)
header_lists = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3)
new_records = st.builds(
    NewRecord, value=some_bytes, key=some_bytes, timestamp=st.integers(-1, 2**44), headers=header_lists
)


class Chunk(NamedTuple):
    data: memoryview
    aborted: Sequence[tuple[int, int]] = ()
    start: int = 0


class Log(NamedTuple):
    """Batches of one partition in order, with the transactions that were aborted."""

    batches: tuple[bytes, ...]
    aborted: tuple[tuple[int, int, int], ...] = ()
    """(producer id, first offset, offset of the marker)"""

    def chunks(self, cuts: Iterable[int] = ()) -> Iterator[Chunk]:
        """The batches as answers of a broker would bring them, cut after the given numbers of batches."""
        bounds = [0, *sorted(cut % (len(self.batches) + 1) for cut in cuts), len(self.batches)]
        start = 0
        for first, last in pairwise(bounds):
            # A broker names those that reach into what it sends, not those that ended before.
            aborted = [(producer, begin) for producer, begin, end in self.aborted if end >= start]
            yield Chunk(memoryview(b"".join(self.batches[first:last])), aborted, start)
            if last > first:
                start = parse_header(self.batches[last - 1]).next_offset


def marker(base_offset: int, producer_id: int, kind: int) -> bytes:
    """The control batch that ends a transaction: kind 0 aborts, 1 commits."""
    record = NewRecord(bytes(6), b"\0\0" + kind.to_bytes(2, "big"), 1)
    stamp = ProducerStamp(producer_id, 0, -1)
    return bytes(
        build_batch([record], base_offset=base_offset, attributes=CONTROL | TRANSACTIONAL, producer=stamp)
    )


def without_records(batch: bytes, kept: Sequence[bool]) -> bytes:
    """What compaction leaves of a batch: some records, the last offset as it was."""
    header = parse_header(batch)
    data = memoryview(records_data(header, batch))
    parts, position = [], 0
    for keep in kept:
        end = record_end(data, position)
        if keep:
            parts.append(bytes(data[position:end]))
        position = end
    changed = header._replace(record_count=len(parts), attributes=header.attributes & ~7)
    return bytes(assemble(changed, b"".join(parts)))


def record_end(data: memoryview, position: int) -> int:
    from headrace.model.varint import read_varint

    length, position = read_varint(data, position)
    return position + length


@st.composite
def logs(draw: st.DrawFn, max_batches: int = 5) -> Log:
    """Plain, compressed, compacted, LogAppendTime and transactional batches, markers, gaps between offsets."""
    batches: list[bytes] = []
    aborted: list[tuple[int, int, int]] = []
    offset = draw(st.sampled_from([0, 3, 2**40]))
    for _ in range(draw(st.integers(0, max_batches))):
        records = draw(st.lists(new_records, min_size=1, max_size=6))
        codec = draw(st.sampled_from(list(Codec)))
        producer = draw(st.sampled_from([-1, 11, 12]))
        attributes = draw(st.sampled_from([0, LOG_APPEND_TIME]))
        if producer >= 0:
            attributes |= TRANSACTIONAL
        stamp = ProducerStamp(producer, 0, 0)
        batch = bytes(build_batch(records, base_offset=offset, codec=codec, attributes=attributes, producer=stamp))
        if draw(st.booleans()):
            batch = without_records(
                batch, draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
            )
        batches.append(batch)
        first, offset = offset, offset + len(records)
        if producer >= 0:
            kind = draw(st.sampled_from([0, 1]))
            batches.append(marker(offset, producer, kind))
            if kind == 0:
                aborted.append((producer, first, offset))
            offset += 1
        offset += draw(st.sampled_from([0, 0, 5]))
    return Log(tuple(batches), tuple(aborted) if draw(st.booleans()) else ())


def visible_records(log: Log, start: int = 0, end: int = EVERYTHING) -> Iterator[tuple[Record, int]]:
    """One by one, with the timestamp type. A transaction here is one batch, and its marker follows."""
    hidden = {(producer, first) for producer, first, _ in log.aborted}
    for batch in log.batches:
        header = parse_header(batch)
        if header.attributes & CONTROL or (header.producer_id, header.base_offset) in hidden:
            continue
        append_time = 1 if header.attributes & LOG_APPEND_TIME else 0
        for record in read_records(batch):
            if start <= record.offset < end:
                yield record, append_time


def row_of(record: Record, append_time: int) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": PARTITION.topic,
        "partition": PARTITION.partition,
        "offset": record.offset,
        "timestamp": min(max(record.timestamp, -LARGEST_MS), LARGEST_MS) * 1000,
        "timestampType": append_time,
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }


def rows_of(log: Log, start: int = 0, end: int = EVERYTHING) -> list[dict[str, Any]]:
    return [row_of(record, append_time) for record, append_time in visible_records(log, start, end)]


def decoded(
    chunks: Iterable[Chunk],
    loops: Engine,
    columns: Sequence[str] = ALL_COLUMNS,
    start: int = 0,
    end: int = EVERYTHING,
    rows_per_batch: int = 4,
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in decode(chunks, columns, PARTITION, start, end, rows_per_batch=rows_per_batch, loops=loops):
        batch.validate(full=True)
        assert 0 < batch.num_rows <= rows_per_batch
        found += plain_rows(batch)
    return found


def plain_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """With timestamps as microseconds: a datetime cannot hold them all."""
    columns = [
        column.cast(pa.int64()) if name == "timestamp" else column
        for name, column in zip(batch.column_names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.column_names).to_pylist()


def resealed(batch: bytes | bytearray) -> bytes:
    """With a CRC that fits, so that what was broken is looked at."""
    changed = bytearray(batch)
    seal(changed)
    return bytes(changed)


def with_records(batch: bytes, data: bytes, **changes: int) -> bytes:
    """The batch with other bytes as its (uncompressed) records."""
    return bytes(assemble(parse_header(batch)._replace(**changes), data))


def record_bytes(batch: bytes) -> bytes:
    return batch[HEADER_SIZE:]


def renumbered(batch: bytes, base_offset: int) -> bytes:
    header = parse_header(batch)._replace(base_offset=base_offset)
    return HEADER.pack(*header) + batch[HEADER_SIZE:]


def record_batch(rows: Sequence[NewRecord]) -> pa.RecordBatch:
    """Records as a sink gets them."""
    from headrace.spark.arrow.columns import arrow_schema

    return pa.RecordBatch.from_pylist(
        [
            {
                "key": record.key,
                "value": record.value,
                "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
                "headers": [{"key": name, "value": value} for name, value in record.headers],
            }
            for record in rows
        ],
        schema=arrow_schema(["key", "value", "timestamp", "headers"]),
    )

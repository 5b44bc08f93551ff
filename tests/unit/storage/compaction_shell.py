"""Compaction without a broker: choose, clean and swap in line, and a plain model of what must be left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from headrace.records.batch import CONTROL, BatchHeader, parse_header
from headrace.records.builder import NO_PRODUCER, NewRecord, ProducerStamp, build_batch
from headrace.records.reader import Record, read_records
from headrace.storage.compaction.choice import find_cleanable, request_for
from headrace.storage.compaction.messages import (
    CleanedGroup,
    CleaningReport,
    CleaningRequest,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from headrace.storage.compaction.swap import offer
from headrace.storage.compaction.worker import Usage, clean
from headrace.storage.log import Log
from headrace.storage.scan import split_batches
from headrace.storage.segment import Segment
from tests.unit.storage.conftest import Store

USAGE = Usage(lambda: 0.0, lambda: 0)
MEMORY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredBatch:
    header: BatchHeader
    data: bytes


def put(
    store: Store,
    *pairs: tuple[str, str | None],
    codec: int = 0,
    at: int | None = None,
    producer: ProducerStamp = NO_PRODUCER,
    attributes: int = 0,
) -> int:
    """Append one batch of (key, value) records; its base offset."""
    timestamp = store.clock.now_ms if at is None else at
    records = [
        NewRecord(None if value is None else value.encode(), key.encode(), timestamp + number, (("h", b"x"),))
        for number, (key, value) in enumerate(pairs)
    ]
    batch = build_batch(records, codec=codec, producer=producer, attributes=attributes)
    return store.log.append_as_leader(memoryview(batch), 0, store.verified(batch)).base_offset


def request(store: Store, memory_bytes: int = MEMORY_BYTES, **changes: Any) -> CleaningRequest | None:
    """For whatever is dirty, however little."""
    log, now_ms = store.log, store.clock.now_ms
    target = find_cleanable(log, store.resources, log.last_stable_offset(log.end_offset), now_ms)
    if target is None or not target.dirty_bytes:
        return None
    made = request_for(target, now_ms, memory_bytes, 0.0)
    return decode_request(encode_request(replace(made, **changes)))


def replies(store: Store, asked: CleaningRequest) -> Iterator[CleanedGroup | CleaningReport]:
    for reply in clean(asked, store.env.disk, lambda size: None, USAGE):
        decoded = decode_reply(encode_reply(reply))
        assert isinstance(decoded, CleanedGroup | CleaningReport)
        yield decoded


def swap_in(store: Store, group: CleanedGroup) -> None:
    log = store.log
    new = Segment(log.directory, group.base_offset, group.size)
    sources = [segment for segment in log.segments if segment.base_offset in group.sources]
    offer(store.env.disk, new)
    store.env.disk.fsync_directory(log.directory)
    log.replace_segments(sources, new)


def compact(store: Store, memory_bytes: int = MEMORY_BYTES, **changes: Any) -> CleaningReport | None:
    """One cleaning, from choice to swap."""
    asked = request(store, memory_bytes, **changes)
    if asked is None:
        return None
    for reply in replies(store, asked):
        if isinstance(reply, CleaningReport):
            store.log.first_dirty_offset = reply.end_offset
            return reply
        if reply.changed:
            swap_in(store, reply)
    raise AssertionError("a cleaning ends with a report")


def stored_batches(log: Log, from_offset: int | None = None) -> list[StoredBatch]:
    """Every batch of the log by way of reads."""
    offset = log.start_offset if from_offset is None else from_offset
    found: list[StoredBatch] = []
    while offset < log.end_offset:
        part = log.read(offset, 1 << 20, log.end_offset, at_least_one=True)
        if part is None:
            break
        data = log._resources.env.disk.pread(part.file.fd, part.size, part.position)
        for position, size in split_batches(memoryview(data)):
            found.append(StoredBatch(parse_header(data, position), data[position : position + size]))
        offset = found[-1].header.next_offset
    return found


def stored_records(log: Log) -> list[Record]:
    """Every data record of the log; each batch must hold together."""
    return [
        record
        for batch in stored_batches(log)
        if not batch.header.attributes & CONTROL
        for record in read_records(batch.data)
    ]


def stored_pairs(log: Log) -> list[tuple[int, str, str | None]]:
    """(offset, key, value) of every data record, as text."""
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for record in stored_records(log)
    ]


def latest(records: list[Record]) -> dict[bytes | None, bytes | None]:
    """What a reader of everything ends up with, deletions applied."""
    table: dict[bytes | None, bytes | None] = {}
    for record in records:
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table

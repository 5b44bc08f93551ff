"""Batches that compaction left without records, if only to say where a segment ends."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.records.builder import NewRecord, assemble, build_batch


def empty(first: int, last: int) -> bytearray:
    header = parse_header(build_batch([NewRecord(b"")], base_offset=first))
    return assemble(header._replace(last_offset_delta=last - first, record_count=0), b"")


def full(offset: int) -> bytearray:
    return build_batch([NewRecord(b"v" * 100, timestamp=5)], base_offset=offset)


@pytest.fixture
def log(store: Any) -> Any:
    """Three segments that hold nothing but their ends, then records among others, and two more at the end."""
    log = store.log
    for batch in (empty(0, 99), empty(100, 199), empty(200, 299), empty(300, 309), full(310), empty(311, 311)):
        log.append_as_follower(batch)
        if log.end_offset in (100, 200, 300):
            log.roll()
    log.append_as_follower(full(312))
    log.append_as_follower(empty(313, 350))
    log.roll()
    log.append_as_follower(empty(351, 400))
    assert len(log.segments) == 5
    return log


@pytest.mark.parametrize(
    ("offset", "limit", "first"),
    [
        (0, 401, 310),
        (150, 401, 310),
        (305, 401, 310),
        (311, 401, 312),
        (313, 401, 351),  # nothing with records: the last one says how far
        (400, 401, 351),
        (0, 310, 300),
        (0, 200, 100),
        (0, 50, 0),
        (120, 150, 100),
    ],
)
def test_a_consumer_is_led_past_them(store: Any, log: Any, offset: int, limit: int, first: int) -> None:
    data = store.bytes_of(log.read(offset, 1 << 20, limit, at_least_one=True, skip_empty=True))
    assert parse_header(data).base_offset == first
    assert parse_header(data).base_offset < limit


def test_a_replica_gets_every_one(store: Any, log: Any) -> None:
    offset, found = 0, []
    while offset < log.end_offset:
        header = parse_header(store.bytes_of(log.read(offset, 1, log.end_offset, at_least_one=True)))
        found.append((header.base_offset, header.size == HEADER_SIZE))
        offset = header.next_offset
    assert [base for base, _ in found] == [0, 100, 200, 300, 310, 311, 312, 313, 351]
    assert [base for base, is_empty in found if not is_empty] == [310, 312]


def test_very_many_are_passed_in_several_reads(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.storage.segment_list.MAX_EMPTY_BATCHES", 10)
    for number in range(25):
        store.log.append_as_follower(empty(number, number))
    store.log.append_as_follower(full(25))
    offset, reads = 0, 0
    while offset < 26:
        data = store.bytes_of(store.log.read(offset, 1, 26, at_least_one=True, skip_empty=True))
        assert parse_header(data).next_offset > offset
        offset, reads = parse_header(data).next_offset, reads + 1
    assert reads == 3

"""What a reader sees of fetched batches."""

from __future__ import annotations

import struct

import pytest

from headrace.client.fetching import Fetched, split_batches
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import CONTROL, TRANSACTIONAL
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.wire.messages.fetch import AbortedTransaction

PARTITION = TopicPartition("t", 0)
COMMIT, ABORT = 1, 0


def batch(offset: int, *values: bytes, producer: int = -1, attributes: int = 0) -> bytes:
    stamp = ProducerStamp(producer, 0, -1)
    records = [NewRecord(value, timestamp=1000) for value in values]
    return bytes(build_batch(records, base_offset=offset, attributes=attributes, producer=stamp))


def marker(offset: int, producer: int, kind: int) -> bytes:
    record = NewRecord(b"", struct.pack(">hh", 0, kind), 1000)
    stamp = ProducerStamp(producer, 0, -1)
    return bytes(build_batch([record], base_offset=offset, attributes=CONTROL | TRANSACTIONAL, producer=stamp))


def fetched(data: bytes, offset: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> Fetched:
    listed = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted]
    return Fetched(PARTITION, offset, 100, tuple(split_batches(data)), listed)


def test_records_before_the_offset_are_left_out() -> None:
    found = fetched(batch(10, b"a", b"b", b"c") + batch(13, b"d"), offset=11)
    assert [(record.offset, record.value) for record in found.records()] == [(11, b"b"), (12, b"c"), (13, b"d")]
    assert found.next_offset == 14


def test_a_batch_cut_off_at_the_end_is_left_out() -> None:
    data = batch(0, b"a") + batch(1, b"b")[:-1]
    assert fetched(data).next_offset == 1
    assert fetched(data[:5], offset=3).next_offset == 3


def test_a_batch_without_a_size_is_corrupt() -> None:
    with pytest.raises(KafkaError):
        fetched(bytes(61))


def test_a_wrong_checksum_is_noticed() -> None:
    data = bytearray(batch(0, b"abcdef"))
    data[-3] ^= 1
    with pytest.raises(KafkaError):
        list(fetched(bytes(data)).records())


def test_markers_are_never_records_and_move_the_offset() -> None:
    found = fetched(batch(0, b"a", producer=5, attributes=TRANSACTIONAL) + marker(1, 5, COMMIT))
    assert [record.value for record in found.records()] == [b"a"]
    assert found.next_offset == 2


def test_aborted_transactions_are_left_out_until_their_marker() -> None:
    """R-PRO-4: read_committed; producer 5 aborts and then commits, 6 commits in between."""
    data = (
        batch(0, b"aborted", producer=5, attributes=TRANSACTIONAL)
        + batch(1, b"kept 6", producer=6, attributes=TRANSACTIONAL)
        + batch(2, b"plain")
        + marker(3, 5, ABORT)
        + batch(4, b"kept 5", producer=5, attributes=TRANSACTIONAL)
        + marker(5, 5, COMMIT)
    )
    kept = [record.value for record in fetched(data, aborted=((5, 0),)).records()]
    assert kept == [b"kept 6", b"plain", b"kept 5"]
    assert len(list(fetched(data).records())) == 4

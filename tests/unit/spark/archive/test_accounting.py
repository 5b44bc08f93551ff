"""What becomes of every offset, by the headers of batches alone."""

from __future__ import annotations

import pytest

from headrace.model.topics import TopicPartition
from headrace.records.batch import CONTROL, TRANSACTIONAL
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.spark.archive.accounting import Account
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.client.fetching import Chunk

PLACE = TopicPartition("t", 0)
COMMIT_MARKER = b"\x00\x00\x00\x01"


def batch(first: int, count: int, attributes: int = 0, producer: int = -1) -> bytes:
    records = [NewRecord(b"v", COMMIT_MARKER if attributes & CONTROL else None, 1) for _ in range(count)]
    stamp = ProducerStamp(producer, 0, 0)
    return bytes(build_batch(records, base_offset=first, attributes=attributes, producer=stamp))


def chunk(start: int, *batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> Chunk:
    return Chunk(memoryview(b"".join(batches)), aborted, start, 0, 1000, 1000)


def account_of(end: int, *chunks: Chunk) -> Account:
    account = Account(PLACE, chunks[0].start, end)
    assert list(account.watched(chunks)) == list(chunks)
    return account


def test_markers_aborted_records_and_holes() -> None:
    account = account_of(
        60,
        chunk(
            0,
            batch(0, 10),
            batch(20, 5, TRANSACTIONAL, 7),
            batch(25, 5, TRANSACTIONAL, 8),
            batch(30, 1, TRANSACTIONAL | CONTROL, 7),
            aborted=((7, 20),),
        ),
        chunk(31, batch(40, 10)),
    )
    assert account.take(31, 15) == (1, 5, 15)
    assert account.take(60, 10) == (0, 0, 10)


def test_a_batch_that_comes_twice_counts_once() -> None:
    """A chunk begins with the batch that has its first offset, which may have been in the one before."""
    account = account_of(40, chunk(0, batch(0, 10), batch(10, 10)), chunk(20, batch(10, 10), batch(20, 20)))
    assert account.take(40, 40) == (0, 0, 40)


def test_across_a_bound_the_headers_cannot_say() -> None:
    account = account_of(40, chunk(5, batch(0, 10), batch(10, 30)))
    assert account.take(20, 15).records is None
    assert account.take(40, 20).records is None


def test_rows_that_are_missing_are_found() -> None:
    account = account_of(20, chunk(0, batch(0, 20)))
    with pytest.raises(ArchiveError, match="state 20 records, but 19 were read"):
        account.take(20, 19)

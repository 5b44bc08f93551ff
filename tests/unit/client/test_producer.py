"""How records become batches."""

from __future__ import annotations

from headrace.client.producer import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, split
from headrace.records.builder import NewRecord, build_batch


def test_few_records_stay_together() -> None:
    records = [NewRecord(b"v")] * 10
    assert split(records) == [records]
    assert split([]) == []


def test_batches_stay_below_the_limit_and_lose_nothing() -> None:
    records = [
        NewRecord(bytes(size), b"key", 1, [("name", b"value")]) for size in (400_000, 450_000, 100, 899_000, 5)
    ]
    parts = split(records)
    assert [record for part in parts for record in part] == records
    assert [len(part) for part in parts] == [3, 2]
    assert all(len(build_batch(part)) < 1_000_000 for part in parts)


def test_a_record_that_is_too_large_goes_alone() -> None:
    small, large = NewRecord(b"s"), NewRecord(bytes(MAX_BATCH_BYTES * 2))
    assert split([small, large, small]) == [[small], [large], [small]]


def test_the_number_of_records_is_limited() -> None:
    assert [len(part) for part in split([NewRecord(None)] * (MAX_BATCH_RECORDS + 1))] == [MAX_BATCH_RECORDS, 1]

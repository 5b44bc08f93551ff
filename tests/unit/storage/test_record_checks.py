"""Where a header is not enough: keys, timestamps in a batch, full validation, and what is answered (KIP-467)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.errors import ErrorCode, KafkaError, RecordsRejected
from headrace.model.limits import MAX_RECORD_ERRORS
from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.records.builder import NewRecord, assemble, build_batch
from headrace.records.compression import Codec

DAY_MS = 86_400_000


def refused(store: Any, batch: bytearray) -> RecordsRejected:
    with pytest.raises(RecordsRejected) as error:
        store.log.append_as_leader(batch, 0)
    assert store.log.end_offset == store.log.size == 0
    return error.value


def batch_at(*times: int, key: bytes | None = b"k", codec: int = 0) -> bytearray:
    return build_batch([NewRecord(b"v", key, time) for time in times], codec=codec)


def with_header(batch: bytearray, **fields: Any) -> bytearray:
    return assemble(parse_header(batch)._replace(**fields), batch[HEADER_SIZE:])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_an_old_record_in_the_middle_is_found(store: Any, codec: Codec) -> None:
    """The header tells the first and the latest timestamp, and the middle one is older than both."""
    now = store.clock.now_ms
    store.create(message_timestamp_before_max_ms=1000)
    error = refused(store, batch_at(now, now - 1000, now - 1001, now - 5000, now, codec=codec))
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in error.record_errors] == [2, 3]
    assert str(now - 1001) in error.record_errors[0][1]
    assert store.log.append_as_leader(batch_at(now, now - 1000, -1, now, codec=codec), 0).base_offset == 0


def test_a_record_too_far_ahead_is_named(store: Any) -> None:
    now = store.clock.now_ms
    error = refused(store, batch_at(now, now + DAY_MS, now))
    assert (error.code, [number for number, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1])


def test_a_broker_that_stamps_minds_no_timestamp(store: Any) -> None:
    store.create(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1000)
    now = store.clock.now_ms
    store.log.append_as_leader(batch_at(0, now + DAY_MS, now - DAY_MS), 0)
    assert store.headers()[0].max_timestamp == now


def test_records_without_a_key_are_named(store: Any) -> None:
    store.create(cleanup_policy=frozenset({"compact"}), message_timestamp_before_max_ms=1000)
    now = store.clock.now_ms
    records = [NewRecord(b"v", b"k", now), NewRecord(b"v", None, 5), NewRecord(b"v", None, now)]
    error = refused(store, build_batch(records))
    assert (error.code, [number for number, _ in error.record_errors]) == (ErrorCode.INVALID_RECORD, [1, 2])
    error = refused(store, build_batch([*records, NewRecord(b"v", b"k", 5)]))
    assert (error.code, [number for number, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1, 2, 3])


def test_the_list_of_errors_is_bounded_and_the_message_counts_them(store: Any) -> None:
    store.create(cleanup_policy=frozenset({"compact"}))
    count = MAX_RECORD_ERRORS + 10
    error = refused(store, store.batch(count))
    assert len(error.record_errors) == MAX_RECORD_ERRORS
    assert error.message is not None
    assert error.message.startswith(f"{count} of {count} records")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_header_that_states_zero_is_made_right(store: Any, codec: Codec) -> None:
    """librdkafka states 0 as the latest timestamp of records that have none; Kafka stores -1."""
    batch = with_header(batch_at(-1, -1, codec=codec), max_timestamp=0)
    store.log.append_as_leader(bytes(batch), 0)
    stored = store.headers()[0]
    assert (stored.base_timestamp, stored.max_timestamp) == (-1, -1)
    store.reopen()  # it has the right checksum
    assert store.log.end_offset == 2


def test_a_batch_of_very_many_records_is_refused_where_each_counts(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.storage.record_checks.MAX_CHECKED_RECORDS", 3)
    store.create(cleanup_policy=frozenset({"compact"}))
    now = store.clock.now_ms
    store.log.append_as_leader(batch_at(now, now, now), 0)
    with pytest.raises(KafkaError) as error:
        store.log.append_as_leader(batch_at(now, now, now, now), 0)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("base", "stated", "stored"), [(-1, 0, -1), (0, 0, 0), (70, 50, 70), (DAY_MS, 5, None), (5, DAY_MS, None)]
)
def test_a_batch_of_very_many_records_is_taken_by_its_odd_header(
    store: Any, monkeypatch: pytest.MonkeyPatch, base: int, stated: int, stored: int | None
) -> None:
    """Nobody else waits while a hostile one's records are looked at."""
    monkeypatch.setattr("headrace.storage.record_checks.MAX_CHECKED_RECORDS", 3)
    store.clock.now_ms = 1000
    batch = with_header(batch_at(base, base, base, base), max_timestamp=stated)
    if stored is None:
        with pytest.raises(KafkaError) as error:
            store.log.append_as_leader(batch, 0)
        assert error.value.code == ErrorCode.INVALID_TIMESTAMP
        return
    store.log.append_as_leader(batch, 0)
    assert store.headers()[0].max_timestamp == stored
    store.reopen()
    assert store.log.end_offset == 4


def test_a_record_of_1970_keeps_its_time(store: Any) -> None:
    store.log.append_as_leader(batch_at(0, -1), 0)
    assert store.headers()[0].max_timestamp == 0


def test_a_header_whose_first_timestamp_is_after_the_latest_is_made_right(store: Any) -> None:
    now = store.clock.now_ms
    store.log.append_as_leader(with_header(batch_at(now, now - 10), max_timestamp=now - 10), 0)
    assert store.headers()[0].max_timestamp == now


def spoiled(now: int, kind: str) -> bytearray:
    whole = batch_at(now, now, now)
    if kind == "structure":
        return assemble(parse_header(whole), whole[HEADER_SIZE:-1] + b"\x07")
    if kind == "offsets":
        size = (len(whole) - HEADER_SIZE) // 3
        first, second, third = (whole[HEADER_SIZE + size * n : HEADER_SIZE + size * (n + 1)] for n in range(3))
        return assemble(parse_header(whole), first + third + second)
    return with_header(whole, record_count=2, last_offset_delta=1)


@pytest.mark.parametrize("kind", ["structure", "offsets", "count"])
def test_full_validation_is_off_until_it_is_asked_for(store: Any, kind: str) -> None:
    batch = spoiled(store.clock.now_ms, kind)
    store.log.append_as_leader(bytes(batch), 0)
    store.create(headrace_record_validation_enable=True)
    store.log.truncate_fully_and_start_at(0)
    with pytest.raises(KafkaError) as error:
        store.log.append_as_leader(batch, 0)
    assert error.value.code == ErrorCode.INVALID_RECORD
    assert [number for number, _ in error.value.record_errors] == ([1, 2] if kind == "offsets" else [])


def test_full_validation_makes_the_latest_timestamp_right(store: Any) -> None:
    store.create(headrace_record_validation_enable=True)
    now = store.clock.now_ms
    store.log.append_as_leader(with_header(batch_at(now - 5, now - 3), max_timestamp=now), 0)
    assert store.headers()[0].max_timestamp == now - 3

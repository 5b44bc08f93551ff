"""Records inside batches: what was built is read, and broken bytes raise nothing but our own error."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import HEADER_SIZE, LOG_APPEND_TIME, checked_header
from headrace.records.builder import NewRecord, ProducerStamp, build_batch, recompress, seal
from headrace.records.compression import Codec
from headrace.records.reader import Record, read_records

some_bytes = st.none() | st.binary(max_size=50)
some_records = st.lists(
    st.builds(
        NewRecord,
        value=some_bytes,
        key=some_bytes,
        timestamp=st.integers(0, 2**45),
        headers=st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3),
    ),
    min_size=1,
    max_size=6,
)


@given(some_records, st.sampled_from(list(Codec)), st.integers(0, 2**50))
def test_what_was_built_is_read(records: list[NewRecord], codec: Codec, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    assert checked_header(memoryview(batch)).codec == codec
    assert list(read_records(batch)) == [
        Record(base_offset + number, record.timestamp, record.key, record.value, tuple(record.headers))
        for number, record in enumerate(records)
    ]


def test_a_batch_to_the_byte() -> None:
    """Laid out by hand from the format's description."""
    batch = build_batch(
        [NewRecord(b"v", b"k", 1000, [("h", None)]), NewRecord(None, None, 1002)],
        base_offset=5,
        leader_epoch=2,
        producer=ProducerStamp(9, 1, 3),
    )
    records = bytes.fromhex("16 00 00 00 026b 0276 02 0268 01") + bytes.fromhex("0c 00 04 02 01 01 00")
    header = (
        bytes.fromhex("0000000000000005 00000044 00000002 02")
        + batch[17:21]
        + bytes.fromhex("0000 00000001 00000000000003e8 00000000000003ea 0000000000000009 0001 00000003 00000002")
    )
    assert bytes(batch) == header + records


@pytest.mark.parametrize("codec", list(Codec))
def test_recompress_keeps_everything_but_the_codec(codec: Codec) -> None:
    batch = build_batch(
        [NewRecord(b"v" * 100, timestamp=7)] * 9, codec=Codec.GZIP, producer=ProducerStamp(4, 2, 8)
    )
    before = checked_header(memoryview(batch))
    after = recompress(before, batch, codec)
    header = checked_header(memoryview(after))
    assert header.codec == codec
    assert header[5:] == (codec, *before[6:])
    assert list(read_records(after)) == list(read_records(batch))


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = build_batch([NewRecord(b"v", timestamp=3), NewRecord(b"v", timestamp=9)], attributes=LOG_APPEND_TIME)
    assert [record.timestamp for record in read_records(batch)] == [9, 9]


def attempt(batch: bytearray) -> ErrorCode | None:
    try:
        list(read_records(batch))
    except KafkaError as error:
        return error.code
    return None


def test_broken_records_raise_only_our_error() -> None:
    whole = build_batch([NewRecord(b"value", b"key", 5, [("name", b"x")])] * 3)
    rng = random.Random(1)
    refused = 0
    for _ in range(3000):
        batch = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            batch[rng.randrange(HEADER_SIZE, len(batch))] = rng.randrange(256)
        answer = attempt(batch)
        assert answer in (None, ErrorCode.INVALID_RECORD)
        refused += answer is not None
    assert refused > 500


@pytest.mark.parametrize("count", [1, 2, 4, 2**31 - 1])
def test_a_count_that_does_not_add_up(count: int) -> None:
    batch = build_batch([NewRecord(b"v")] * 3)
    batch[57:61] = count.to_bytes(4, "big")
    seal(batch)
    with pytest.raises(KafkaError) as error:
        list(read_records(batch))
    assert error.value.code == ErrorCode.INVALID_RECORD

"""The quick walk sees what the reader sees, and refuses what the reader refuses."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.records.builder import NewRecord, assemble, build_batch
from headrace.records.compression import Codec
from headrace.records.reader import read_records
from headrace.records.walk import walk_records

FIELDS = st.none() | st.binary(max_size=200) | st.integers(60, 9000).map(bytes)
RECORDS = st.lists(
    st.builds(
        NewRecord,
        value=FIELDS,
        key=FIELDS,
        timestamp=st.integers(-1, 2**41) | st.integers(1_700_000_000_000, 1_700_000_000_100),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=80)), max_size=3),
    ),
    min_size=1,
    max_size=90,
)


@given(records=RECORDS, codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_sees_what_the_reader_sees(records: list[NewRecord], codec: Codec) -> None:
    batch = build_batch(records, codec=codec)
    header = parse_header(batch)
    walk = walk_records(header, memoryview(batch))
    assert [header.base_timestamp + delta for delta in walk.timestamp_deltas] == [r.timestamp for r in records]
    assert walk.without_key == [number for number, record in enumerate(records) if record.key is None]
    assert walk.misplaced == []


def reads(batch: bytearray) -> bool:
    try:
        list(read_records(batch))
    except KafkaError as error:
        # The walk does not decode the names of headers, as Kafka does not.
        assume("UTF-8" not in str(error))
        return False
    return True


def walks(batch: bytearray) -> bool:
    try:
        walk_records(parse_header(batch), batch)
    except KafkaError as error:
        return error.code != ErrorCode.INVALID_RECORD
    return True


@given(records=RECORDS, data=st.data())
def test_refuses_what_the_reader_refuses(records: list[NewRecord], data: st.DataObject) -> None:
    whole = build_batch(records)
    body = bytearray(whole[HEADER_SIZE:])
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.just(len(body)) | st.integers(0, len(body)))
    spoiled = assemble(parse_header(whole), body[:end] + data.draw(st.binary(max_size=3)))
    assert walks(spoiled) == reads(spoiled)


def test_tells_records_that_are_not_in_their_place() -> None:
    three = build_batch([NewRecord(b"a"), NewRecord(b"b"), NewRecord(b"c")])
    first, second, third = (three[HEADER_SIZE + 8 * n : HEADER_SIZE + 8 * (n + 1)] for n in range(3))
    batch = assemble(parse_header(three), first + third + second)
    assert walk_records(parse_header(batch), batch).misplaced == [1, 2]


@pytest.mark.parametrize("size", [0, 3])
def test_a_count_that_cannot_be(size: int) -> None:
    batch = assemble(parse_header(build_batch([NewRecord(b"a")])), bytes(size))
    with pytest.raises(KafkaError, match="do not fit"):
        walk_records(parse_header(batch), batch)

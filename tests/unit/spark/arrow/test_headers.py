"""Headers read at once are those that are read one by one; what is wrong with a chunk is told in its order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.records.builder import NewRecord, build_batch
from headrace.spark.arrow import batches
from headrace.spark.arrow.headers import HEADER_TYPE, Wanted, checked_headers
from tests.unit.spark.arrow.cases import Chunk, Log, logs

EVERYTHING = Wanted(TopicPartition("t", 0), 0, 2**62, 1 << 20)


def plain(base_offset: int, size: int = 10) -> bytes:
    return bytes(build_batch([NewRecord(b"v" * size, None, 1)], base_offset=base_offset))


@given(logs(), st.integers(0, 2**41))
def test_headers_are_those_read_one_by_one(log: Log, end: int) -> None:
    whole = b"".join(log.batches)
    found = checked_headers(memoryview(whole), EVERYTHING._replace(end=end))
    position, expected = 0, []
    while position < len(whole) and (header := parse_header(whole, position)).base_offset < end:
        expected.append((position, tuple(header)))
        position += header.size
    assert list(zip(found.at.tolist(), found.fields.tolist(), strict=True)) == expected
    assert found.ends.tolist() == [at + parse_header(whole, at).size for at, _ in expected]


def test_no_batch_at_all() -> None:
    found = checked_headers(memoryview(b""), EVERYTHING)
    assert len(found.at) == 0
    assert found.fields.dtype == HEADER_TYPE


BAD_CRC = plain(7)[:-1] + b"x"
OLD_FORMAT = plain(7)[:16] + b"\1" + plain(7)[17:]
TOO_LONG = plain(7)[:-1]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (plain(0) + BAD_CRC + OLD_FORMAT, ErrorCode.CORRUPT_MESSAGE, "offset 7: the CRC"),
        (
            plain(0) + OLD_FORMAT + BAD_CRC,
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            "offset 7: record batch format v1",
        ),
        (BAD_CRC + TOO_LONG, ErrorCode.CORRUPT_MESSAGE, "the CRC"),
        (plain(0) + TOO_LONG, ErrorCode.CORRUPT_MESSAGE, "offset 7: a batch of"),
        (plain(0) + bytes(HEADER_SIZE - 1), ErrorCode.CORRUPT_MESSAGE, "60 bytes follow the last batch"),
    ],
    ids=["CRC first", "format first", "CRC before length", "length", "rest"],
)
def test_the_first_problem_is_told(data: bytes, code: ErrorCode, words: str) -> None:
    with pytest.raises(KafkaError, match=words) as caught:
        checked_headers(memoryview(data), EVERYTHING)
    assert caught.value.code == code


def test_nothing_is_believed_behind_the_end() -> None:
    found = checked_headers(memoryview(plain(0) + BAD_CRC), EVERYTHING._replace(end=7))
    assert found.at.tolist() == [0]


def test_a_run_is_no_larger_than_it_may_be_except_for_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [30, 30, 500, 30, 30, 30, 200]
    data = b"".join(plain(offset, size) for offset, size in enumerate(sizes))
    records = [len(plain(0, size)) - HEADER_SIZE for size in sizes]
    monkeypatch.setattr(batches, "RUN_BYTES", 3 * records[0])
    found = list(batches.runs(Chunk(memoryview(data)), EVERYTHING))
    assert [run.record_count for run in found] == [2, 1, 3, 1]
    assert [run.size for run in found] == [2 * records[0], records[2], 3 * records[0], records[6]]

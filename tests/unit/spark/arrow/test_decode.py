"""Record batches to Arrow: the same rows as reading record by record, with either engine (R-SPK-1)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, parse_header
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.records.compression import Codec
from headrace.spark.arrow import assembly, batches, kernels, pure
from headrace.spark.arrow.columns import ALL_COLUMNS, arrow_schema
from headrace.spark.arrow.decode import decode
from headrace.spark.arrow.engine import Engine
from tests.unit.spark.arrow.cases import (
    EVERYTHING,
    PARTITION,
    Chunk,
    Log,
    both_engines,
    decoded,
    logs,
    marker,
    renumbered,
    rows_of,
    with_records,
    without_records,
)

cuts = st.lists(st.integers(0, 20), max_size=2)
column_sets = st.lists(st.sampled_from(ALL_COLUMNS), min_size=1, unique=True)


def batch_of(values: int, base_offset: int = 0, codec: int = 0, attributes: int = 0, producer: int = -1) -> bytes:
    records = [NewRecord(b"value-%d" % number, b"k", 1000 + number) for number in range(values)]
    stamp = ProducerStamp(producer, 0, 0)
    return bytes(build_batch(records, base_offset=base_offset, codec=codec, attributes=attributes, producer=stamp))


@settings(deadline=None)
@given(logs(), cuts, st.integers(1, 9))
@both_engines
def test_same_rows_as_record_by_record(loops: Engine, log: Log, cuts: list[int], rows_per_batch: int) -> None:
    """All codecs, nulls, headers, control batches, aborted transactions, compacted gaps, LogAppendTime."""
    assert decoded(log.chunks(cuts), loops, rows_per_batch=rows_per_batch) == rows_of(log)


@settings(deadline=None)
@given(logs(), cuts, column_sets, st.data())
def test_engines_agree_on_any_columns_and_range(
    log: Log, cuts: list[int], columns: list[str], data: st.DataObject
) -> None:
    first = parse_header(log.batches[0]).base_offset if log.batches else 0
    last = parse_header(log.batches[-1]).next_offset if log.batches else 1
    start = data.draw(st.integers(first, last))
    end = data.draw(st.integers(start, last + 1))
    expected = [{name: row[name] for name in columns} for row in rows_of(log, start, end)]
    for loops in (kernels, pure):
        assert decoded(log.chunks(cuts), loops, columns, start, end) == expected


@both_engines
def test_schema_is_what_spark_expects(loops: Engine) -> None:
    for columns in (ALL_COLUMNS, ("value",), ("timestampType", "topic")):
        chunks = [Chunk(memoryview(batch_of(3)))]
        (batch,) = decode(chunks, columns, PARTITION, 0, EVERYTHING, loops=loops)
        assert batch.schema.equals(arrow_schema(columns))


@both_engines
def test_offsets_of_an_earlier_chunk_are_not_given_twice(loops: Engine) -> None:
    batch = memoryview(batch_of(6))
    found = decoded([Chunk(batch), Chunk(batch, start=4)], loops, ["offset"], end=9)
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 4, 5, 4, 5]


@both_engines
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_batches_are_gathered_and_cut_by_rows(loops: Engine, codec: Codec) -> None:
    chunks = [Chunk(memoryview(b"".join(batch_of(7, 7 * n, codec) for n in range(10))))] * 2
    chunks[1] = Chunk(
        memoryview(b"".join(renumbered(batch_of(7, codec=codec), 70 + 7 * n) for n in range(3))), start=70
    )
    sizes = [
        batch.num_rows
        for batch in decode(chunks, ALL_COLUMNS, PARTITION, 0, EVERYTHING, rows_per_batch=30, loops=loops)
    ]
    assert sizes == [30, 30, 30, 1]


@both_engines
def test_batches_are_cut_by_bytes(loops: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are asked for, no column comes near what 32-bit offsets can reach."""
    monkeypatch.setattr(batches, "RUN_BYTES", 500)
    monkeypatch.setattr(assembly, "RUN_BYTES", 500)
    log = Log(tuple(batch_of(5, 5 * number, codec=number % 2) for number in range(100)))
    found = list(decode(log.chunks([11]), ["value"], PARTITION, 0, EVERYTHING, loops=loops))
    assert sum(batch.num_rows for batch in found) == 500
    assert len(found) > 10
    assert all(batch.column(0).nbytes < 800 for batch in found)


@both_engines
def test_one_batch_larger_than_a_run_is_whole(loops: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "RUN_BYTES", 10)
    monkeypatch.setattr(assembly, "RUN_BYTES", 10)
    (found,) = decode([Chunk(memoryview(batch_of(50)))], ["value"], PARTITION, 0, EVERYTHING, loops=loops)
    assert found.num_rows == 50


def test_two_transactions_of_one_producer() -> None:
    """An abort hides only what it aborted: the producer's next transaction is seen."""
    first = batch_of(2, 0, attributes=TRANSACTIONAL, producer=5)
    second = batch_of(2, 3, attributes=TRANSACTIONAL, producer=5)
    data = first + marker(2, 5, 0) + second + marker(5, 5, 1)
    found = decoded([Chunk(memoryview(data), aborted=[(5, 0)])], kernels, ["offset"])
    assert [row["offset"] for row in found] == [3, 4]


def test_aborted_transaction_that_began_before_the_chunk() -> None:
    data = batch_of(2, 10, attributes=TRANSACTIONAL, producer=5) + batch_of(1, 12) + marker(13, 5, 0)
    found = decoded([Chunk(memoryview(data), aborted=[(5, 3)], start=10)], kernels, ["offset"])
    assert [row["offset"] for row in found] == [12]


def test_commit_marker_does_not_end_anothers_abort() -> None:
    aborted = batch_of(1, 0, attributes=TRANSACTIONAL, producer=5)
    more = batch_of(1, 2, attributes=TRANSACTIONAL, producer=5)
    data = aborted + marker(1, 6, 1) + more + marker(3, 5, 0)
    assert decoded([Chunk(memoryview(data), aborted=[(5, 0)])], kernels, ["offset"]) == []


def test_control_batches_are_never_rows() -> None:
    """Also where the reader does not ask for committed records only."""
    assert decoded([Chunk(memoryview(marker(0, 5, 0)))], kernels) == []
    odd = build_batch([NewRecord(b"x", b"")], attributes=CONTROL)
    assert decoded([Chunk(memoryview(bytes(odd)))], kernels) == []


@both_engines
def test_batch_emptied_by_compaction(loops: Engine) -> None:
    batch = without_records(batch_of(3), [False] * 3)
    assert decoded([Chunk(memoryview(batch + batch_of(1, 3)))], loops, ["offset"]) == [{"offset": 3}]


@both_engines
def test_nothing(loops: Engine) -> None:
    assert decoded([], loops) == []
    assert decoded([Chunk(memoryview(b""))], loops) == []


def test_batches_behind_the_end_are_not_looked_at() -> None:
    data = batch_of(2) + renumbered(b"\xff" * 80, 2)
    assert len(decoded([Chunk(memoryview(data))], kernels, ["value"], end=2)) == 2


@both_engines
@pytest.mark.parametrize(
    ("milliseconds", "microseconds"),
    [(-1, -1000), (2**62, (2**63 - 1) // 1000 * 1000), (-(2**62), -((2**63 - 1) // 1000) * 1000)],
)
@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME])
def test_timestamps_without_a_place_in_arrow(
    loops: Engine, milliseconds: int, microseconds: int, attributes: int
) -> None:
    """No timestamp is -1 ms, as Spark's own source has it; beyond the largest is the largest."""
    batch = bytes(build_batch([NewRecord(b"", timestamp=milliseconds)], attributes=attributes))
    (found,) = decode([Chunk(memoryview(batch))], ["timestamp"], PARTITION, 0, EVERYTHING, loops=loops)
    assert found.column(0).cast(pa.int64()).to_pylist() == [microseconds]


@both_engines
def test_header_name_that_is_not_text(loops: Engine) -> None:
    """A producer may write any bytes; what is not UTF-8 is replaced, as Java's consumer does."""
    good = bytes(build_batch([NewRecord(b"v", headers=[("ab", b"1")])]))
    bad = with_records(good, good[61:].replace(b"ab", b"\xff\xfe"))
    (row,) = decoded([Chunk(memoryview(bad))], loops, ["headers"])
    assert row["headers"] == [{"key": "\ufffd\ufffd", "value": b"1"}]


def test_decompression_is_bounded() -> None:
    batch = build_batch([NewRecord(bytes(1_000_000))], base_offset=12, codec=Codec.ZSTD)
    assert len(batch) < 1000
    with pytest.raises(KafkaError, match=r"some\.topic-7, batch at offset 12.*more than 1000 bytes") as caught:
        list(decode([Chunk(memoryview(batch))], ["offset"], PARTITION, 0, EVERYTHING, max_decompressed=1000))
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE

"""Arrow to record batches: byte for byte what building record by record gives (R-SPK-3)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import parse_header
from headrace.records.builder import NewRecord, build_batch, seal
from headrace.records.compression import Codec
from headrace.records.reader import read_records
from headrace.spark.arrow import kernels, pure
from headrace.spark.arrow.columns import HEADERS_TYPE
from headrace.spark.arrow.encode import MAX_BATCH_BYTES, EncodableRows, Encoded, encodable, encode
from headrace.spark.arrow.engine import Engine
from tests.unit.spark.arrow.cases import both_engines, new_records, record_batch

record_lists = st.lists(new_records, min_size=1, max_size=8)


def sealed(encoded: Encoded) -> bytes:
    batch = bytearray(encoded.batch)
    seal(batch)
    return bytes(batch)


def used_memory(size: int) -> memoryview:
    """Nothing may be left of what was in it."""
    return memoryview(bytearray(b"\xff" * size))


def all_of(
    rows: pa.RecordBatch | EncodableRows, loops: Engine, codec: int = 0, max_batch_bytes: int = MAX_BATCH_BYTES
) -> list[bytes]:
    return [
        sealed(encoded)
        for encoded in encode(
            rows, codec=codec, now_ms=77, max_batch_bytes=max_batch_bytes, loops=loops, take=used_memory
        )
    ]


@settings(deadline=None)
@given(record_lists, st.sampled_from(list(Codec)))
@both_engines
def test_same_bytes_as_record_by_record(loops: Engine, records: list[NewRecord], codec: Codec) -> None:
    assert all_of(record_batch(records), loops, codec=codec) == [bytes(build_batch(records, codec=codec))]


@settings(deadline=None)
@given(record_lists, st.data())
def test_chosen_rows_and_limits(records: list[NewRecord], data: st.DataObject) -> None:
    """Rows in the order of the indices, cut the same by both engines, none lost at a cut."""
    indices = np.array(data.draw(st.lists(st.integers(0, len(records) - 1), max_size=20)), np.int64)
    limit, most = data.draw(st.integers(0, 300)), data.draw(st.integers(1, 9))
    rows = encodable(record_batch(records))
    found = [
        list(encode(rows, indices, now_ms=1, max_batch_bytes=limit, max_records=most, loops=loops))
        for loops in (kernels, pure)
    ]
    assert found[0] == found[1]
    position = 0
    for encoded in found[0]:
        chosen = [records[index] for index in indices[position : position + encoded.record_count]]
        assert sealed(encoded) == bytes(build_batch(chosen))
        assert encoded.record_count <= most
        assert encoded.record_count == 1 or len(encoded.batch) <= limit
        position += encoded.record_count
    assert position == len(indices)


@both_engines
def test_batches_are_filled_to_the_limit(loops: Engine) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * 100] * 1000)})
    batches = all_of(rows, loops, max_batch_bytes=10_000)
    assert len(batches) == 12
    assert all(10_000 - 120 < len(batch) <= 10_000 for batch in batches[:-1])


@both_engines
def test_record_larger_than_the_limit_goes_alone(loops: Engine) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"b" * 5000, b"c"])})
    batches = all_of(rows, loops, max_batch_bytes=1000)
    assert [parse_header(batch).record_count for batch in batches] == [1, 1, 1]


@both_engines
def test_timestamps(loops: Engine) -> None:
    """Given ones in milliseconds, rounded down; now where there is none; first and latest in the header."""
    stamps = pa.array([5_999, None, -1_001], pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"b", b"c"]), "timestamp": stamps})
    (batch,) = all_of(rows, loops)
    assert [record.timestamp for record in read_records(batch)] == [5, 77, -2]
    header = parse_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (5, 77)
    (batch,) = all_of(rows.select(["value"]), loops)
    assert {record.timestamp for record in read_records(batch)} == {77}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamp_types(unit: str, zone: str | None) -> None:
    stamps = pa.array([2], pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b""]), "timestamp": stamps})
    assert next(read_records(all_of(rows, kernels)[0])).timestamp == 2000


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_types_of_keys_and_values(kind: pa.DataType) -> None:
    text = pa.array(["left out", "é", None, ""], kind)
    rows = pa.RecordBatch.from_pydict({"value": text, "key": text}).slice(1)
    (batch,) = all_of(rows, kernels)
    assert [record.value for record in read_records(batch)] == ["é".encode(), None, b""]
    assert [record.key for record in read_records(batch)] == ["é".encode(), None, b""]


def test_null_columns() -> None:
    """As Spark gives a literal NULL."""
    rows = pa.RecordBatch.from_pydict({name: pa.nulls(2) for name in ("key", "value", "headers", "timestamp")})
    (batch,) = all_of(rows, kernels)
    assert [tuple(record)[1:] for record in read_records(batch)] == [(77, None, None, ())] * 2


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="bytes or text expected, not int64"):
        all_of(pa.RecordBatch.from_pydict({"value": pa.array([1])}), kernels)


@both_engines
def test_sliced_headers(loops: Engine) -> None:
    lists = pa.array(
        [[{"key": "a", "value": b"1"}], None, [], [{"key": "b", "value": None}, {"key": "", "value": b""}]],
        HEADERS_TYPE,
    )
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b""] * 4), "headers": lists})
    for start in range(4):
        (batch,) = all_of(rows.slice(start), loops)
        expected = [(("a", b"1"),), (), (), (("b", None), ("", b""))][start:]
        assert [record.headers for record in read_records(batch)] == expected


@pytest.mark.parametrize("bad", [{"key": None, "value": b"1"}, None])
def test_header_without_a_name(bad: dict[str, bytes | None] | None) -> None:
    lists = pa.array([[], [{"key": "a", "value": b"1"}, bad]], HEADERS_TYPE)
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"", b""]), "headers": lists})
    with pytest.raises(KafkaError, match="Row 1 has a header without a name") as caught:
        encodable(rows)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert len(encodable(rows.slice(0, 1))) == 1


@both_engines
def test_no_rows(loops: Engine) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})
    assert all_of(rows, loops) == []
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"x"])})
    assert list(encode(rows, np.array([], np.int64), now_ms=1, loops=loops)) == []

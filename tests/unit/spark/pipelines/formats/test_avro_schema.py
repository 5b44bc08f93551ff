"""Avro schemas as columns, and values both ways: nothing that was written may read back differently."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.spark.pipelines.formats.avro import AvroReading, AvroWriting
from headrace.spark.pipelines.formats.avro_schema import AvroSchemaError, load_avro_schema

EVERYTHING = {
    "type": "record",
    "name": "All",
    "namespace": "x.y",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "real", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "again", "type": "Color"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "list", "type": {"type": "array", "items": ["null", "x.y.Color"]}},
        {"name": "map", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": {"type": "record", "name": "In", "fields": [{"name": "h", "type": "Hash"}]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
TEXT = json.dumps(EVERYTHING)
LONGS = st.integers(-(2**63), 2**63 - 1)
COLORS = st.sampled_from(["RED", "BLUE"])
RECORDS = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "small": st.integers(-(2**31), 2**31 - 1),
        "large": LONGS,
        "real": st.floats(allow_nan=False),
        "raw": st.binary(max_size=9),
        "text": st.none() | st.text(max_size=9),
        "color": COLORS,
        "again": COLORS,
        "hash": st.binary(min_size=2, max_size=2),
        "list": st.lists(st.none() | COLORS, max_size=3),
        "map": st.dictionaries(st.text(max_size=3), LONGS, max_size=3),
        "inner": st.fixed_dictionaries({"h": st.binary(min_size=2, max_size=2)}),
        "day": st.integers(-100_000, 100_000),
        "time": st.integers(0, 86_399_999_999),
        "at": st.integers(-60_000_000_000_000_000, 200_000_000_000_000_000),
        "local": st.integers(-60_000_000_000_000, 200_000_000_000_000),
        "id": st.uuids().map(str),
        "price": st.decimals(-999_999, 999_999, places=2),
    }
)


def encoded(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(EVERYTHING), record)
    return out.getvalue()


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_records_read_and_written_again_are_the_same_bytes(records: list[dict[str, Any]]) -> None:
    values = [encoded(record) for record in records]
    batch = pa.RecordBatch.from_pydict({"value": values})
    (read,) = AvroReading(TEXT, confluent=False).convert([batch])
    parsed = read.column(1)
    assert isinstance(parsed, pa.StructArray)
    assert parsed.field("error").to_pylist() == [None] * len(values)
    rows = pa.RecordBatch.from_arrays([parsed.field("row")], names=["row"])
    (again,) = AvroWriting(TEXT, "row", None).convert([rows])
    assert again.column(0).to_pylist() == values


@settings(max_examples=300, deadline=None)
@given(RECORDS, st.binary(max_size=8), st.integers(0, 200), st.booleans())
def test_broken_values_are_told_and_never_raise(record: dict[str, Any], junk: bytes, at: int, cut: bool) -> None:
    value = bytearray(encoded(record))
    value[at : len(value) if cut else at + len(junk)] = junk
    batch = pa.RecordBatch.from_pydict({"value": [bytes(value), None]})
    (read,) = AvroReading(TEXT, confluent=False).convert([batch])
    assert read.num_rows == 2
    assert read.column(1).to_pylist()[1] == {"row": None, "error": "the value is null"}


def test_the_columns() -> None:
    schema = load_avro_schema(TEXT)
    shown = {field.name: field.mapped.spark.simpleString() for field in schema.fields}
    assert shown["list"] == "array<string>"
    assert shown["map"] == "map<string,bigint>"
    assert shown["inner"] == "struct<h:binary>"
    assert (shown["at"], shown["local"], shown["day"]) == ("timestamp", "timestamp_ntz", "date")
    assert (shown["price"], shown["time"], shown["id"]) == ("decimal(9,2)", "string", "string")
    assert [field.name for field in schema.fields if field.mapped.nullable] == ["text"]


def record_of(field_type: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": field_type}]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not valid JSON"),
        ('"string"', "not a record"),
        ('{"type": "array", "items": "int"}', "not a record"),
        (record_of("nothing"), "not a valid Avro schema"),
        (record_of(["int", "string"]), r"R\.f is a union of 2 types"),
        (record_of(["null", "R"]), "the type R contains itself"),
        (record_of({"type": "bytes", "logicalType": "decimal", "precision": 50}), "decimal of 50 digits"),
    ],
)
def test_what_cannot_be_columns_is_refused(text: str, expected: str) -> None:
    with pytest.raises(AvroSchemaError, match=expected):
        load_avro_schema(text)

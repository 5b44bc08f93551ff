"""Each format on records good and bad: what becomes a row, what is malformed, and why. R-SPK-6, R-BEY-4."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.compiling.sinks import SinkProblem, exploded, rows_to_write
from headrace.spark.pipelines.compiling.tables import TableDecoder, latest_rows
from headrace.spark.pipelines.definition import KeyColumn, Sink, Source, SparkSettings
from headrace.spark.pipelines.formats.choosing import SchemaFileError, declared_schema, make_decoder
from headrace.spark.pipelines.formats.decoding import REASON, good_rows, malformed_rows
from headrace.spark.pipelines.formats.json import encode_json
from headrace.spark.pipelines.running.session import make_session

JSON_SCHEMA = "id int NOT NULL, name string, at timestamp, inner struct<x: int>, many array<int>"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return make_session(SparkSettings(), "formats")


def source(**given: Any) -> Source:
    return Source("raw", 1, "topics", topics=("t",), **given)


def values(session: SparkSession, *records: bytes | None) -> DataFrame:
    return session.createDataFrame(list(enumerate(records)), "number int, value binary")


def decoded(frame: DataFrame, read: Source) -> tuple[dict[int, Row], dict[int, str]]:
    """By the number of the record: its row, or why it is malformed. Every record is one or the other."""
    decoder = make_decoder(read)
    assert decoder is not None
    rows = {row["number"]: row for row in good_rows(frame, decoder, ["number"]).collect()}
    reasons = {row["number"]: row[REASON] for row in malformed_rows(frame, decoder).collect()}
    assert sorted([*rows, *reasons]) == list(range(frame.count()))
    return rows, reasons


def test_json(session: SparkSession) -> None:
    good = {
        b'{"id": 1, "name": "a", "at": "2026-01-01T00:00:00Z", "inner": {"x": 2}, "many": [1]}': (1, "a"),
        b' {"id": 2} \n': (2, None),
        b'{"id": 3, "name": 5, "unknown": {}}': (3, "5"),
        '{"id": 4, "name": "ü"}'.encode(): (4, "ü"),
        b'{"id": 5.0, "inner": {"x": 2e1}, "many": [1, 2.0]}': (5, None),
    }
    bad = {
        b'{"id": "x", "name": "a"}': "'id' is not a value of type int: x",
        b'{"id": 1.5}': "'id' is not a value of type int: 1.5",
        b'{"id": 2147483648.0}': "'id' is not a value of type int: 2.147483648E9",
        b'{"id": 1.0, "many": [1, 2.5]}': "'many' is not a value of type array<int>: [1,2.5]",
        b'{"id": 99999999999}': "'id' is not a value of type int: 99999999999",
        b'{"id": 1, "at": "yesterday"}': "'at' is not a value of type timestamp: yesterday",
        b'{"id": 1, "inner": {"x": "y"}}': "a field inside does not have the type that the schema says",
        b'{"id": 1, "many": [1, "x"]}': "'many' is not a value of type array<int>: [1,\"x\"]",
        b'{"name": "a"}': "'id' is missing, and the schema says NOT NULL",
        b'{"id": null}': "'id' is missing, and the schema says NOT NULL",
        b'{"id": 1} trailing': "something follows the JSON value",
        b'{"id": 1} {"id": 2}': "something follows the JSON value",
        b'{"id": 1},{"id": 2}': "something follows the JSON value",
        b'{"id": 1},"headrace:row":{"id": 2}': "something follows the JSON value",
        b'{"id": 1},"x":{"id": 2}': "something follows the JSON value",
        b'{"id": 1': "the value is not valid JSON",
        b"{'id': 1}": "the value is not valid JSON",
        b'[{"id": 1}]': "the value is JSON, but not an object",
        b"3": "the value is JSON, but not an object",
        b'"text"': "the value is JSON, but not an object",
        b"null": "the value is JSON, but not an object",
        b"": "the value is empty",
        b"  ": "the value is empty",
        b'{"id": 1, "name": "\xff"}': "the value is not UTF-8 text",
        None: "the value is null",
    }
    rows, reasons = decoded(values(session, *good, *bad), source(format="json", schema=JSON_SCHEMA))
    assert [(rows[n]["id"], rows[n]["name"]) for n in range(len(good))] == list(good.values())
    assert (rows[0]["at"], rows[0]["inner"]["x"], rows[0]["many"]) == (datetime(2026, 1, 1), 2, [1])
    assert (rows[4]["inner"]["x"], rows[4]["many"]) == (20, [1, 2])
    assert [reasons[n] for n in range(len(good), len(good) + len(bad))] == list(bad.values())


def test_json_numbers_without_a_fraction_fit_a_bigint(session: SparkSession) -> None:
    """However they are written, to the last digit: nothing goes through a double."""
    good = {
        b'{"id": 12.0}': 12,
        b'{"id": 1.2e1}': 12,
        b'{"id": -0.0}': 0,
        b'{"id": 9007199254740993.0}': 2**53 + 1,
        b'{"id": 9223372036854775807.0}': 2**63 - 1,
        b'{"id": -9223372036854775808.0}': -(2**63),
    }
    bad = [b'{"id": 12.5}', b'{"id": 9223372036854775808.0}', b'{"id": 1e30}']
    rows, reasons = decoded(values(session, *good, *bad), source(format="json", schema="id bigint"))
    assert [rows[number]["id"] for number in range(len(good))] == list(good.values())
    assert len(reasons) == len(bad)
    assert {reason.partition(":")[0] for reason in reasons.values()} == {"'id' is not a value of type bigint"}


def test_json_written_is_read_as_it_was(session: SparkSession) -> None:
    """To the microsecond, and also what is not a number."""
    schema = "at timestamp, local timestamp_ntz, x double, y float"
    row = "timestamp'2026-01-01 00:00:00.123456' at, timestamp_ntz'2026-01-01 00:00:00.654321' local"
    frame = session.sql(f"SELECT {row}, double('NaN') x, float('-Infinity') y")
    written = frame.select(encode_json(F.struct("*"), {}).cast("binary").alias("value"), F.lit(0).alias("number"))
    text = b'{"at":"2026-01-01T00:00:00.123456Z","local":"2026-01-01T00:00:00.654321","x":"NaN","y":"-Infinity"}'
    assert [bytes(one["value"]) for one in written.collect()] == [text]
    rows, _ = decoded(written, source(format="json", schema=schema))
    found = rows[0]
    assert (found["at"].microsecond, found["local"].microsecond) == (123456, 654321)
    assert (str(found["x"]), str(found["y"])) == ("nan", "-inf")


def test_raw_records_go_to_the_topic_of_the_sink(session: SparkSession) -> None:
    """Not to the one in their column `topic`, where they come from."""
    columns = (
        "binary('k') key, binary('v') value, 'from' topic, 1 partition, 7L offset, timestamp'2026-01-01' timestamp"
    )
    view = session.sql(f"SELECT {columns}")
    sink = Sink("out", 1, "topic", "v", topic="to", format="raw")
    assert rows_to_write(view, sink).columns == ["key", "value", "partition", "timestamp"]
    named = replace(sink, topic="{topic}.copy")
    assert [row["topic"] for row in rows_to_write(view, named).collect()] == ["from.copy"]
    both = exploded(view, [sink, named]).select("topic", "value").collect()
    assert {row["topic"]: bytes(row["value"]) for row in both} == {"to": b"v", "from.copy": b"v"}
    with pytest.raises(SinkProblem, match="there is no column day"):
        rows_to_write(view, replace(sink, topic="{day}"))
    with pytest.raises(SinkProblem, match="raw needs a column value"):
        rows_to_write(view.drop("value"), sink)


def test_records_have_times_and_headers_and_results_can_delete(session: SparkSession) -> None:
    view = session.sql(
        "SELECT 'a' k, 1 n, timestamp'2026-01-01' at, 'x' trace UNION ALL "
        "SELECT 'b', NULL, timestamp'2026-01-02', NULL UNION ALL SELECT 'c', 0, NULL, 'z'"
    )
    headers = {"trace-id": "trace", "count": "n"}
    sink = Sink("out", 1, "topic", "v", topic="t", key="k", timestamp="at", headers=headers, delete="n = 0")
    records = {bytes(row["key"]): row for row in rows_to_write(view, sink).collect()}
    assert records[b"c"]["value"] is None, "a tombstone"
    assert bytes(records[b"b"]["value"]) == b'{"k":"b","at":"2026-01-02T00:00:00.000000Z"}', "null is not true"
    assert [(one["key"], one["value"]) for one in records[b"a"]["headers"]] == [
        ("trace-id", b"x"),
        ("count", b"1"),
    ]
    assert [one["value"] for one in records[b"b"]["headers"]] == [None, None]
    assert (records[b"a"]["timestamp"], records[b"c"]["timestamp"]) == (datetime(2026, 1, 1), None)
    assert exploded(view, [sink, replace(sink, delete=None, topic="u")]).count() == 6
    with pytest.raises(SinkProblem, match="trace is string, and the time of a record is a timestamp"):
        rows_to_write(view, replace(sink, timestamp="trace"))
    with pytest.raises(SinkProblem, match="there is no column nope"):
        rows_to_write(view, replace(sink, headers={"h": "nope"}))


def test_csv(session: SparkSession) -> None:
    good = {
        b"1;x;2026-01-01": (1, "x", date(2026, 1, 1)),
        b'2;"a;""b""";': (2, 'a;"b"', None),
        b"3;y;2026-01-02\r\n": (3, "y", date(2026, 1, 2)),
    }
    bad = {
        b"x;y;": "'id' is not a value of type int: x",
        b"1;x": "the line does not have the 3 columns of the schema",
        b"1;x;2026-01-01;more": "the line does not have the 3 columns of the schema",
        b"1;x;2026-01-01\n2;y;": "the line does not have the 3 columns of the schema",
        b";x;": "'id' is missing, and the schema says NOT NULL",
        b"\n": "the value is empty",
        b"1;\xff;": "the value is not UTF-8 text",
        None: "the value is null",
    }
    read = source(format="csv", schema="id int NOT NULL, name string, day date", options={"csv.delimiter": ";"})
    rows, reasons = decoded(values(session, *good, *bad), read)
    assert [tuple(rows[n])[:3] for n in range(len(good))] == list(good.values())
    assert [reasons[n] for n in range(len(good), len(good) + len(bad))] == list(bad.values())


def test_text(session: SparkSession) -> None:
    rows, reasons = decoded(values(session, "ü".encode(), b"", b"\xff", None), source(format="text"))
    assert [rows[n]["value"] for n in (0, 1)] == ["ü", ""]
    assert reasons == {2: "the value is not UTF-8 text", 3: "the value is null"}


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "A"},
    ],
}
ORDER = {"id": 7, "note": "n", "tags": {"a": 1}, "at": 1_767_225_600_000, "price": Decimal("12.50"), "kind": "B"}


def avro(record: dict[str, Any], schema: dict[str, Any] = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(AVRO))
    return str(path)


def test_avro(session: SparkSession, schema_file: str) -> None:
    wide = {**AVRO, "fields": [*AVRO["fields"][:4], {**AVRO["fields"][4], "type": "bytes"}, AVRO["fields"][5]]}
    too_many_digits = avro({**ORDER, "price": (10**12).to_bytes(8, "big")}, wide)
    records = [
        avro(ORDER),
        avro({**ORDER, "note": None}),
        avro(ORDER)[:-2],
        avro(ORDER) + b"x",
        too_many_digits,
        None,
    ]
    rows, reasons = decoded(values(session, *records), source(format="avro", schema_file=schema_file))
    assert tuple(rows[0])[:6] == (7, "n", {"a": 1}, datetime(2026, 1, 1), Decimal("12.50"), "B")
    assert rows[1]["note"] is None
    assert reasons[2].startswith("the value is not an Avro record of the schema: ")
    assert reasons[3] == "1 bytes follow the Avro record: it is probably of another schema"
    assert "the value is not an Avro record of the schema" in reasons[4]
    assert reasons[5] == "the value is null"


def test_avro_behind_the_id_of_a_registry(session: SparkSession, schema_file: str) -> None:
    read = source(format="avro", schema_file=schema_file, options={"avro.framing": "confluent"})
    rows, reasons = decoded(values(session, b"\0\0\0\0\x07" + avro(ORDER), avro(ORDER), b"\0\0"), read)
    assert rows[0]["id"] == 7
    assert len(reasons) == 2
    assert all("does not begin with a zero and the id of a schema" in reason for reason in reasons.values())


def test_schemas_out_of_files(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.ddl").write_text("id int NOT NULL")
    ddl = declared_schema(source(format="json", schema_file=str(tmp_path / "a.ddl")))
    (tmp_path / "a.json").write_text(ddl.json())
    assert declared_schema(source(format="json", schema_file=str(tmp_path / "a.json"))) == ddl
    (tmp_path / "b.json").write_text('{"fields": 3}')
    with pytest.raises(SchemaFileError, match="is not a schema as Spark writes it"):
        declared_schema(source(format="json", schema_file=str(tmp_path / "b.json")))
    with pytest.raises(SchemaFileError, match="No such file"):
        declared_schema(source(format="json", schema_file=str(tmp_path / "c.json")))


RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)


def record(
    key: bytes | None, value: bytes | None, partition: int, offset: int, second: int = 0
) -> tuple[Any, ...]:
    return key, value, "users", partition, offset, datetime(2026, 1, 1, 0, 0, second), 0, None


def test_a_table_is_the_latest_value_of_each_key(session: SparkSession) -> None:
    records = session.createDataFrame(
        [
            record(b"1", b'{"country": "CH"}', 0, 0, second=9),
            record(b"1", b'{"country": "IT"}', 0, 1, second=3),  # the offset counts, not the clock of a producer
            record(b"2", b'{"country": "DE"}', 0, 2),
            record(b"2", None, 0, 3),
            record(b"3", b'{"country": "FR"}', 0, 4),
            record(b"3", b"broken", 0, 5),
            record(b"4", b'{"country": "old"}', 0, 6, second=1),
            record(b"4", b'{"country": "new"}', 1, 0, second=2),  # the topic got a second partition in between
            record(b"x", b'{"country": "AT"}', 0, 7),
            record(None, b'{"country": "AT"}', 0, 8),
        ],
        RECORDS,
    )
    table = Source(
        "users", 1, "table", ("users",), format="json", schema="country string", key=KeyColumn("id", "bigint")
    )
    decoder = make_decoder(table)
    assert decoder is not None
    found = latest_rows(records, table, decoder, ["_offset"])
    assert sorted(map(tuple, found.collect())) == [("FR", 3, 4), ("IT", 1, 1), ("new", 4, 0)]
    assert found.columns == ["country", "id", "_offset"]
    malformed = malformed_rows(records, TableDecoder(decoder, table.key)).select("offset", REASON).collect()
    assert sorted(map(tuple, malformed)) == [
        (5, "the value is not valid JSON"),
        (7, "the key is not a value of type bigint"),
        (8, "a record of a table needs a key"),
    ]
    raw = latest_rows(records, Source("users", 1, "table", ("users",)), None, [])
    assert raw.columns == records.columns
    assert sorted(bytes(row["value"]) for row in raw.collect() if row["key"] == b"1") == [b'{"country": "IT"}']


def sink(**given: Any) -> Sink:
    return Sink("out", 1, "topic", "view", topic="t", **given)


def written(frame: DataFrame, to: Sink) -> list[tuple[Any, ...]]:
    found = rows_to_write(frame, to)
    names = [name for name in ("key", "value", "topic") if name in found.columns]
    return [
        tuple(bytes(x) if isinstance(x, bytearray) else x for x in row) for row in found.select(*names).collect()
    ]


def test_what_sinks_write(session: SparkSession, schema_file: str) -> None:
    frame = session.sql("SELECT 1 AS id, 'a b' AS name, CAST(NULL AS STRING) AS gone, 9 AS _offset")
    assert written(frame, sink(format="json", key="id")) == [(b"1", b'{"id":1,"name":"a b"}')]
    assert written(frame, sink(format="json", key="_offset")) == [(b"9", b'{"id":1,"name":"a b"}')]
    assert written(frame, sink(format="csv", options={"csv.delimiter": "|"})) == [(b"1|a b|",)]
    assert written(frame.select("id", "name"), sink(format="text", key="id")) == [(b"1", b"a b")]
    split = Sink("out", 1, "topic", "view", topic="logs.{name}.{gone}-x", format="json")
    assert [row[1] for row in written(frame, split)] == ["logs.a_b.null-x"]
    orders = session.sql(
        "SELECT 7L id, 'n' note, map('a', 1) tags, timestamp'2026-01-01' at, 12.5 price, 'B' kind"
    )
    assert written(orders, sink(format="avro", schema_file=schema_file)) == [(avro(ORDER),)]
    framed = sink(
        format="avro", schema_file=schema_file, options={"avro.framing": "confluent", "avro.schema_id": "7"}
    )
    ((value,),) = written(orders.drop("kind", "note"), framed)
    assert value == b"\0\0\0\0\x07" + avro({**ORDER, "note": None, "kind": "A"})
    raw = session.sql("SELECT 'k' AS key, 'v' AS value, 'x' AS other, 'from' AS topic")
    assert written(raw, sink(format="raw")) == [("k", "v")], "to the topic of the sink, not back to the source"


@pytest.mark.parametrize(
    ("query", "given", "expected"),
    [
        ("SELECT 1 AS id", {"key": "nid"}, "there is no column nid"),
        ("SELECT 1 AS id", {"topic": "a.{x}"}, "there is no column x"),
        ("SELECT 1 AS id, 2 AS id", {}, "view has several columns called id"),
        ("SELECT 1 AS _offset", {}, "view has no columns to write"),
        ("SELECT 'a' AS a, 'b' AS b", {"format": "text"}, "text writes one column, but there are a, b"),
        ("SELECT 1 AS a", {"format": "text"}, "text writes strings, and a is int"),
        ("SELECT array(1) AS a", {"format": "csv"}, "a line of CSV cannot hold a, which is array<int>"),
        ("SELECT 1 AS a", {"format": "raw"}, "raw needs a column value"),
    ],
)
def test_what_sinks_refuse(session: SparkSession, query: str, given: dict[str, Any], expected: str) -> None:
    with pytest.raises(SinkProblem) as refused:
        rows_to_write(session.sql(query), Sink("out", 1, "topic", "view", **{"topic": "t", **given}))
    assert refused.value.what == expected

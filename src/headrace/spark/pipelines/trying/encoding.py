"""Rows of a test as the records that a topic, or the lines that a file, would hold."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import fastavro
from pyspark.sql.types import StructType

from headrace.spark.arrow.columns import ALL_COLUMNS
from headrace.spark.pipelines.definition import METADATA_COLUMNS, Source
from headrace.spark.pipelines.formats.avro import CONFLUENT, is_framed
from headrace.spark.pipelines.formats.avro_schema import load_avro_schema
from headrace.spark.pipelines.formats.choosing import declared_schema, format_options, read_schema_file
from headrace.spark.pipelines.trying.cases import CaseError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def given_rows(source: Source, given: Sequence[Any]) -> list[tuple[object, ...]]:
    """As `GivenOpening` takes them."""
    if source.kind == "files" and source.format == "parquet":
        names = declared_schema(source).names if source.schema or source.schema_file else sorted(_names(given))
        return [(*(_plain(row.get(name)) for name in names), "test") for row in given]
    if source.kind == "files":
        return [(_text(_value(source, row)), "test") for row in given]
    return [_record(source, row, number) for number, row in enumerate(given)]


def _names(given: Iterable[Any]) -> set[str]:
    return {name for row in given for name in row}


def _record(source: Source, row: Any, number: int) -> tuple[object, ...]:
    own = {name: row[name] for name in METADATA_COLUMNS if isinstance(row, dict) and name in row}
    found = {
        "key": _bytes(_key(source, row, own)),
        "value": _value(source, row),
        "topic": own.get("_topic", source.topics[0] if source.topics else "test"),
        "partition": own.get("_partition", 0),
        "offset": own.get("_offset", number),
        "timestamp": _time(own.get("_timestamp", EPOCH)),
        "timestampType": 0,
        "headers": [(name, _bytes(value)) for name, value in (own.get("_headers") or {}).items()],
    }
    return tuple(found[name] for name in ALL_COLUMNS)


def _key(source: Source, row: Any, own: Mapping[str, Any]) -> Any:
    if "_key" in own or not isinstance(row, dict):
        return own.get("_key")
    if source.format == "raw":
        return row.get("key")
    return row.get(source.key.name) if source.key is not None else None


def _value(source: Source, row: Any) -> bytes | None:
    if row is None or not isinstance(row, dict):
        return _bytes(row)
    columns = {name: value for name, value in row.items() if name not in METADATA_COLUMNS}
    if source.key is not None:
        columns.pop(source.key.name, None)
    if source.format in ("raw", "text"):
        return _bytes(columns.get("value"))
    if source.format == "csv":
        return _csv_line(source, columns)
    if source.format == "avro":
        return _avro(source, columns)
    return json.dumps(_plain(columns), ensure_ascii=False).encode()


def _csv_line(source: Source, columns: Mapping[str, Any]) -> bytes:
    options = {name.lower(): value for name, value in format_options(source.options, "csv").items()}
    schema: StructType = declared_schema(source)
    out = io.StringIO()
    writer = csv.writer(out, delimiter=options.get("sep", options.get("delimiter", ",")), lineterminator="")
    writer.writerow([_plain(columns.get(name)) for name in schema.names])
    return out.getvalue().encode()


def _avro(source: Source, columns: Mapping[str, Any]) -> bytes:
    assert source.schema_file is not None
    options = format_options(source.options, "avro")
    out = io.BytesIO()
    if is_framed(options):
        out.write(CONFLUENT.pack(0, 1))
    schema = load_avro_schema(read_schema_file(source.schema_file))
    try:
        fastavro.schemaless_writer(out, schema.parsed, dict(columns))
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        raise CaseError(f"a row of source {source.name} does not fit the Avro schema: {error}") from None
    return out.getvalue()


def _plain(value: Any) -> Any:
    """What YAML makes of a time is text again."""
    if isinstance(value, datetime):
        return _time(value).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _time(value: Any) -> datetime:
    """Without a zone it is UTC."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise CaseError(f"_timestamp: {value!r} is not a time such as 2026-01-31T12:00:00Z") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(_plain(value))).encode()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()

"""Avro schemas as Spark and Arrow types, and the conversion of values.

    null in a union   a column that may be null         enum, uuid   string
    record            struct                            fixed        binary
    array, map        array, map<string, ...>           date         date
    timestamp-*       timestamp                         time-*       string, 12:30:00.5
    local-timestamp-* timestamp without zone            decimal      decimal

Unions of several types besides null, and types that contain themselves, have no place in a table and are refused.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType
from pyspark.sql import types as spark

MAX_DECIMAL_DIGITS = 38

Convert = Callable[[Any], Any]


class AvroSchemaError(Exception):
    """The schema cannot be read, or has no equivalent in columns."""


class Mapped(NamedTuple):
    """A type in Avro, Spark and Arrow. The converters get values that are not None."""

    spark: spark.DataType
    arrow: pa.DataType
    read: Convert
    """From what fastavro gives to what Arrow takes."""
    write: Convert
    """From what Arrow gives to what fastavro takes."""
    nullable: bool = False


class AvroField(NamedTuple):
    name: str
    mapped: Mapped
    has_default: bool


class AvroRecord(NamedTuple):
    """The schema of a topic's values."""

    fields: tuple[AvroField, ...]
    mapped: Mapped
    parsed: Any
    """As fastavro wants it."""


def _same(value: Any) -> Any:
    return value


def _plain(spark_type: spark.DataType, arrow_type: pa.DataType) -> Mapped:
    return Mapped(spark_type, arrow_type, _same, _same)


_TIMESTAMP = _plain(spark.TimestampType(), pa.timestamp("us", "UTC"))
_LOCAL_TIMESTAMP = _plain(spark.TimestampNTZType(), pa.timestamp("us"))
_TIME = Mapped(
    spark.StringType(), pa.string(), lambda time: time.isoformat(), lambda text: datetime.time.fromisoformat(text)
)
_PRIMITIVES = {
    "null": _plain(spark.NullType(), pa.null()),
    "boolean": _plain(spark.BooleanType(), pa.bool_()),
    "int": _plain(spark.IntegerType(), pa.int32()),
    "long": _plain(spark.LongType(), pa.int64()),
    "float": _plain(spark.FloatType(), pa.float32()),
    "double": _plain(spark.DoubleType(), pa.float64()),
    "bytes": _plain(spark.BinaryType(), pa.binary()),
    "string": _plain(spark.StringType(), pa.string()),
}
_LOGICAL = {
    ("int", "date"): _plain(spark.DateType(), pa.date32()),
    ("int", "time-millis"): _TIME,
    ("long", "time-micros"): _TIME,
    ("long", "timestamp-millis"): _TIMESTAMP,
    ("long", "timestamp-micros"): _TIMESTAMP,
    ("long", "local-timestamp-millis"): _LOCAL_TIMESTAMP,
    ("long", "local-timestamp-micros"): _LOCAL_TIMESTAMP,
    ("string", "uuid"): Mapped(spark.StringType(), pa.string(), str, uuid.UUID),
}


def load_avro_schema(text: str) -> AvroRecord:
    """Raises `AvroSchemaError` with what is wrong, in words."""
    try:
        raw = json.loads(text)
        parsed = fastavro.parse_schema(raw)
    except json.JSONDecodeError as error:
        raise AvroSchemaError(f"it is not valid JSON: {error}") from None
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise AvroSchemaError(f"it is not a valid Avro schema: {error}") from None
    if not isinstance(raw, dict) or raw.get("type") != "record":
        raise AvroSchemaError("it is not a record: the values of a topic need named fields")
    walk = _Walk({}, ())
    fields, mapped = walk.record(raw, "", raw["name"])
    return AvroRecord(fields, mapped, parsed)


class _Walk(NamedTuple):
    """Through a schema, with the named types seen so far and those that are still open."""

    named: dict[str, Mapped]
    open: tuple[str, ...]

    def type(self, schema: Any, namespace: str, where: str) -> Mapped:
        if isinstance(schema, list):
            return self.union(schema, namespace, where)
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self.reference(schema, namespace, where)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.type(kind, namespace, where)
        if kind in ("record", "error"):
            return self.record(schema, namespace, where)[1]
        if kind == "array":
            return _array_of(self.type(schema["items"], namespace, where))
        if kind == "map":
            return _map_of(self.type(schema["values"], namespace, where))
        if kind in ("enum", "fixed"):
            return self.remember(schema, namespace, _leaf(schema))
        return _leaf(schema) if kind in _PRIMITIVES else self.type(kind, namespace, where)

    def union(self, branches: list[Any], namespace: str, where: str) -> Mapped:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            raise AvroSchemaError(
                f"{where} is a union of {len(others)} types; only one, and null, can be a column"
            )
        return self.type(others[0], namespace, where)._replace(nullable="null" in branches)

    def reference(self, name: str, namespace: str, where: str) -> Mapped:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self.open:
            raise AvroSchemaError(f"{where}: the type {name} contains itself, which no column can")
        found = self.named.get(full) or self.named.get(name)
        if found is None:
            raise AvroSchemaError(f"{where}: there is no type {name}")
        return found

    def record(
        self, schema: Mapping[str, Any], namespace: str, where: str
    ) -> tuple[tuple[AvroField, ...], Mapped]:
        full, inner_namespace = _full_name(schema, namespace)
        inner = _Walk(self.named, (*self.open, full))
        fields = tuple(
            AvroField(
                field["name"],
                inner.type(field["type"], inner_namespace, f"{where}.{field['name']}"),
                "default" in field,
            )
            for field in schema["fields"]
        )
        return fields, self.remember(schema, namespace, _struct_of(fields))

    def remember(self, schema: Mapping[str, Any], namespace: str, mapped: Mapped) -> Mapped:
        self.named[_full_name(schema, namespace)[0]] = mapped
        return mapped


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """A type's full name, and the namespace of what it contains."""
    name = str(schema["name"])
    if "." in name:
        return name, name.rpartition(".")[0]
    inner = str(schema.get("namespace", namespace))
    return (f"{inner}.{name}" if inner else name), inner


def _leaf(schema: Mapping[str, Any]) -> Mapped:
    kind, logical = str(schema["type"]), str(schema.get("logicalType"))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if precision > MAX_DECIMAL_DIGITS:
            raise AvroSchemaError(f"it has a decimal of {precision} digits, and Spark has {MAX_DECIMAL_DIGITS}")
        return _plain(spark.DecimalType(precision, scale), pa.decimal128(precision, scale))
    if kind == "enum":
        return _PRIMITIVES["string"]
    if kind == "fixed":
        return _PRIMITIVES["bytes"]
    return _LOGICAL.get((kind, logical)) or _PRIMITIVES[kind]


def _struct_of(fields: tuple[AvroField, ...]) -> Mapped:
    readers = [(field.name, _or_none(field.mapped.read)) for field in fields]
    writers = [(field.name, _or_none(field.mapped.write)) for field in fields]
    return Mapped(
        spark.StructType([spark.StructField(field.name, field.mapped.spark) for field in fields]),
        pa.struct([pa.field(field.name, field.mapped.arrow) for field in fields]),
        lambda record: {name: read(record.get(name)) for name, read in readers},
        lambda row: {name: write(row[name]) for name, write in writers if name in row},
    )


def _array_of(item: Mapped) -> Mapped:
    read, write = _or_none(item.read), _or_none(item.write)
    return Mapped(
        spark.ArrayType(item.spark),
        pa.list_(item.arrow),
        lambda values: [read(value) for value in values],
        lambda values: [write(value) for value in values],
    )


def _map_of(item: Mapped) -> Mapped:
    """Arrow takes and gives a map as pairs."""
    read, write = _or_none(item.read), _or_none(item.write)
    return Mapped(
        spark.MapType(spark.StringType(), item.spark),
        pa.map_(pa.string(), item.arrow),
        lambda values: [(key, read(value)) for key, value in values.items()],
        lambda pairs: {key: write(value) for key, value in pairs},
    )


def _or_none(convert: Convert) -> Convert:
    return convert if convert is _same else lambda value: None if value is None else convert(value)

"""The columns of the source, with their Arrow and Spark types.

They are the columns of Spark's own `kafka` format, in its order. Spark compares the Arrow schema of the first
batch with the one it derives from the Spark schema, down to the name of the list's element, so both are spelled
out here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KEY = "key"
VALUE = "value"
TOPIC = "topic"
PARTITION = "partition"
OFFSET = "offset"
TIMESTAMP = "timestamp"
TIMESTAMP_TYPE = "timestampType"
HEADERS = "headers"

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_TYPE))
TIMESTAMP_ARROW_TYPE = pa.timestamp("us", "UTC")

ARROW_TYPES: Mapping[str, pa.DataType] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: TIMESTAMP_ARROW_TYPE,
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: HEADERS_TYPE,
}
SPARK_TYPES: Mapping[str, str] = {
    KEY: "binary",
    VALUE: "binary",
    TOPIC: "string",
    PARTITION: "int",
    OFFSET: "bigint",
    TIMESTAMP: "timestamp",
    TIMESTAMP_TYPE: "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
"""As Spark's `simpleString` writes them."""

ALL_COLUMNS = tuple(ARROW_TYPES)
USUAL_COLUMNS = tuple(name for name in ALL_COLUMNS if name != HEADERS)
"""Without `includeHeaders`."""


class ColumnError(ValueError):
    """A schema asked for a column that the source does not have, or with another type."""


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in names])


def wanted_columns(schema: StructType) -> tuple[str, ...]:
    """The names of the columns that a schema asks for: any of the source's, in any order, with its types."""
    for field in schema.fields:
        _check_column(field.name, field.dataType.simpleString())
    names = tuple(schema.fieldNames())
    if not names:
        raise ColumnError(f"The schema names no column. The source has {_listed()}.")
    for name in names:
        if names.count(name) > 1:
            raise ColumnError(f"The schema names the column '{name}' twice.")
    return names


def _check_column(name: str, spark_type: str) -> None:
    if name not in SPARK_TYPES:
        near = difflib.get_close_matches(name, SPARK_TYPES, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ColumnError(f"The source has no column '{name}'.{hint} It has {_listed()}.")
    expected = SPARK_TYPES[name]
    if spark_type != expected:
        raise ColumnError(
            f"The column '{name}' is {expected}, not {spark_type}. "
            f"Ask for it as {expected} and cast it afterwards: CAST({name} AS {spark_type.upper()})."
        )


def _listed() -> str:
    return ", ".join(f"{name} {spark_type}" for name, spark_type in SPARK_TYPES.items())

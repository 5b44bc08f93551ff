"""Schemas for tests without a session: `StructType.fromDDL` needs one."""

from __future__ import annotations

import re

from pyspark.sql import types as t

HEADERS = "array<struct<key:string,value:binary>>"
TYPES: dict[str, t.DataType] = {
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "int": t.IntegerType(),
    "bigint": t.LongType(),
    "double": t.DoubleType(),
    "timestamp": t.TimestampType(),
    "void": t.NullType(),
    "map<string,string>": t.MapType(t.StringType(), t.StringType()),
    HEADERS: t.ArrayType(
        t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])
    ),
}


def schema(text: str) -> t.StructType:
    """`name type, name type`."""
    fields = [part.split(" ", 1) for part in re.split(r", ", text)]
    return t.StructType([t.StructField(name, TYPES[kind]) for name, kind in fields])

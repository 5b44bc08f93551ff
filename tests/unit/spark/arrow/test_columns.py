"""The columns of the source, and what a user's schema may ask for."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.spark.arrow.columns import (
    ALL_COLUMNS,
    USUAL_COLUMNS,
    ColumnError,
    arrow_schema,
    wanted_columns,
)


def schema_of(text: str) -> StructType:
    schema = StructType()
    for part in text.split(", "):
        name, _, kind = part.partition(" ")
        schema = schema.add(name, kind)
    return schema


@pytest.mark.parametrize("include_headers", [False, True])
def test_arrow_and_spark_agree(include_headers: bool) -> None:
    """Spark compares them exactly before it takes a batch."""
    names = ALL_COLUMNS if include_headers else USUAL_COLUMNS
    schema = from_arrow_schema(arrow_schema(names))
    assert tuple(schema.fieldNames()) == names
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(names))
    assert wanted_columns(schema) == names


def test_any_columns_in_any_order() -> None:
    assert wanted_columns(schema_of("value binary")) == ("value",)
    assert wanted_columns(schema_of("offset long, key binary")) == ("offset", "key")


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("valeu binary", "no column 'valeu'. Did you mean 'value'?"),
        ("zzz long", "no column 'zzz'. It has key binary, value binary, topic string"),
        ("value string", "'value' is binary, not string. Ask for it as binary and cast it afterwards"),
        ("offset integer", "'offset' is bigint, not int"),
        ("key binary, key binary", "'key' twice"),
    ],
)
def test_what_is_refused(schema: str, complaint: str) -> None:
    with pytest.raises(ColumnError) as caught:
        wanted_columns(schema_of(schema))
    assert complaint in str(caught.value)


def test_no_columns_at_all() -> None:
    with pytest.raises(ColumnError, match="names no column"):
        wanted_columns(StructType())

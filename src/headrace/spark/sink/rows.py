"""Rows to Arrow, for PySpark 4.0: its streams give Python rows. Slower than Arrow; there is no other way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.spark.arrow import columns as c
from headrace.spark.sink.columns import ALLOWED, NOTHING

ROWS_PER_BATCH = 10_000
_ARROW = {"string": pa.string(), "binary": pa.binary(), NOTHING: pa.null()}


def batches_of_rows(rows: Iterable[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Arrow batches with the columns of the schema; those that the sink does not know are null."""
    waiting = iter(rows)
    while chunk := list(islice(waiting, ROWS_PER_BATCH)):
        arrays = [
            _array(field.name, field.dataType.simpleString(), [row[place] for row in chunk])
            for place, field in enumerate(schema.fields)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=schema.fieldNames())


def _array(name: str, spark_type: str, values: list[Any]) -> pa.Array:
    if name not in ALLOWED or spark_type == NOTHING:
        return pa.nulls(len(values))
    if name == c.HEADERS:
        values = [None if row is None else [{"key": one[0], "value": one[1]} for one in row] for row in values]
    if name == c.TIMESTAMP:
        values = [_aware(value) for value in values]
    return pa.array(values, type=_ARROW.get(spark_type) or c.ARROW_TYPES[name])


def _aware(moment: datetime | None) -> datetime | None:
    """Spark gives local times without a zone."""
    return None if moment is None else moment.astimezone()

"""Rows of a view as plain values: what `preview` prints and `test` compares."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType

from headrace.spark.pipelines.compiling.sources import HIDDEN
from headrace.spark.pipelines.formats.decoding import quoted

TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"


def shown_columns(view: DataFrame) -> list[str]:
    """Without the metadata that no sink writes, unless there is nothing else."""
    return [name for name in view.columns if name not in HIDDEN] or list(view.columns)


def shown_rows(view: DataFrame, limit: int | None = None) -> list[dict[str, Any]]:
    """As JSON has them: times as text in UTC, bytes as text."""
    names = shown_columns(view)
    binary = {one.name for one in view.schema.fields if isinstance(one.dataType, BinaryType)}
    columns = [F.col(quoted(name)) for name in names]
    columns = [
        one.cast("string").alias(name) if name in binary else one for name, one in zip(names, columns, strict=True)
    ]
    options = {"ignoreNullFields": "false", "timestampFormat": TIME}
    chosen = view.select(*columns)
    rows = chosen if limit is None else chosen.limit(limit)
    return [json.loads(row[0]) for row in rows.select(F.to_json(F.struct(*rows.columns), options)).collect()]

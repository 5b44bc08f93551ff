"""Python rows to Arrow, as PySpark 4.0 needs it."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql.types import Row

from headrace.spark.sink import rows
from headrace.spark.sink.rows import batches_of_rows
from tests.unit.spark.sink.schemas import HEADERS, schema

NAMES = ["key", "value", "other", "headers", "timestamp", "partition", "topic"]
SCHEMA = schema(
    f"key string, value binary, other int, headers {HEADERS}, timestamp timestamp, partition int, topic string"
)


def row(*values: object) -> Row:
    return Row(**dict(zip(NAMES, values, strict=True)))


def header(name: str, value: bytes | None) -> Row:
    return Row(key=name, value=value)


def test_rows_become_batches() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5)  # as Spark gives it: local, without a zone
    full = row("k", b"v", 1, [header("h", b"x"), header("i", None)], moment, 3, "t")
    empty = row(*[None] * 7)
    (batch,) = batches_of_rows([full, empty], SCHEMA)
    assert batch.to_pydict() == {
        "key": ["k", None],
        "value": [b"v", None],
        "other": [None, None],
        "headers": [[{"key": "h", "value": b"x"}, {"key": "i", "value": None}], None],
        "timestamp": [moment.astimezone(UTC), None],
        "partition": [3, None],
        "topic": ["t", None],
    }


def test_batches_are_limited() -> None:
    many = [row(*[None] * 7)] * (rows.ROWS_PER_BATCH + 1)
    assert [len(batch) for batch in batches_of_rows(iter(many), SCHEMA)] == [rows.ROWS_PER_BATCH, 1]

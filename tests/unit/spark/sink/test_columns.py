"""Which columns the sink writes, and what it says of those it cannot."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.spark.sink.columns import SinkColumns, sink_columns
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.options import parse_sink_options
from tests.unit.spark.sink.schemas import HEADERS, schema

TOPIC = {"topic": "t"}


def columns(ddl: str, **options: str) -> SinkColumns:
    return sink_columns(schema(ddl), parse_sink_options({"kafka.bootstrap.servers": "h:1", **options}))


@pytest.mark.parametrize(
    ("ddl", "options", "found"),
    [
        ("value string", TOPIC, {"value": 0}),
        ("x int, value binary, key string", TOPIC, {"value": 1, "key": 2}),
        (
            f"key binary, value binary, topic string, partition int, headers {HEADERS}, timestamp timestamp",
            {},
            {"key": 0, "value": 1, "topic": 2, "partition": 3, "headers": 4, "timestamp": 5},
        ),
        (f"value string, topic int, headers {HEADERS}", {"topic": "t", "includeHeaders": "false"}, {"value": 0}),
        ("key void, value void, headers void, partition void", TOPIC, None),
        ("value string, offset bigint, timestampType int, Value2 string", TOPIC, {"value": 0}),
    ],
)
def test_the_columns_that_are_written(ddl: str, options: dict[str, str], found: dict[str, int] | None) -> None:
    places = columns(ddl, **options).places
    assert found is None or places == found


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        ("key string", TOPIC, "the frame has no column 'value', only key: make one, as with to_json"),
        (
            "values string",
            {"topic": "t"},
            "the frame has no column 'value', only values: rename 'values' to 'value'",
        ),
        ("value string", {}, "no topic to write to: set the option topic, or give the frame a column 'topic'"),
        (
            "value int",
            {"topic": "t"},
            "the column 'value' is int, and must be string or binary: cast it, as CAST(",
        ),
        ("value string, key bigint", TOPIC, "the column 'key' is bigint, and must be string or binary"),
        (
            "value string, topic binary",
            {},
            "the column 'topic' is binary, and must be string: cast it, as CAST(",
        ),
        ("value string, topic void", {}, "the column 'topic' is void, and must be string"),
        ("value string, partition bigint", TOPIC, "the column 'partition' is bigint, and must be int"),
        (
            "value string, timestamp string",
            {"topic": "t"},
            "must be timestamp: cast it, as CAST(timestamp AS TIMEST",
        ),
        (
            "value string, headers map<string,string>",
            {"topic": "t"},
            f"is map<string,string>, and must be {HEADERS}",
        ),
        (
            "Key string, value string",
            {"topic": "t"},
            "the column 'Key' is written only as 'key': rename it, or drop",
        ),
        ("value string, value string", TOPIC, "the frame has the column 'value' twice"),
    ],
)
def test_mistakes_name_the_column_and_the_way_out(ddl: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(SinkError) as caught:
        columns(ddl, **options)
    assert message in str(caught.value)


def test_rows_are_narrowed_to_the_columns_that_are_written() -> None:
    batch = pa.RecordBatch.from_pydict({"other": [1], "value": ["v"], "key": ["k"]})
    chosen = columns("other int, value string, key string", topic="t").chosen(batch)
    assert chosen.to_pydict() == {"value": ["v"], "key": ["k"]}

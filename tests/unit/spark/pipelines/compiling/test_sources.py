"""What is asked of the source, for a declared source."""

from __future__ import annotations

import pytest

from headrace.spark.pipelines.compiling.sources import metadata_used, starting_options, topic_options
from headrace.spark.pipelines.definition import METADATA_COLUMNS, Pipeline, Sink, Source, Step, Watermark
from headrace.spark.pipelines.formats.choosing import format_options, other_options

RAW = Source(
    "raw", 1, "topics", ("a", "b"), format="csv", options={"csv.delimiter": ";", "maxOffsetsPerTrigger": "9"}
)


def test_options_are_the_formats_or_the_sources() -> None:
    assert format_options(RAW.options, "csv") == {"delimiter": ";"}
    assert other_options(RAW.options, "csv") == {"maxOffsetsPerTrigger": "9"}
    assert topic_options(RAW, "h:1", ["value"]) == {
        "maxOffsetsPerTrigger": "9",
        "subscribe": "a,b",
        "kafka.bootstrap.servers": "h:1",
    }
    pattern = Source("raw", 1, "topics", pattern="a.*")
    assert topic_options(pattern, "h:1", ["value", "headers"]) == {
        "subscribePattern": "a.*",
        "includeHeaders": "true",
        "kafka.bootstrap.servers": "h:1",
    }


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        ("earliest", {"startingOffsets": "earliest"}),
        ("-10m", {"startingOffsets": "-10m", "startingOffsetsByTimestampStrategy": "latest"}),
    ],
)
def test_where_it_starts(starting: str, expected: dict[str, str]) -> None:
    assert starting_options(Source("raw", 1, "topics", ("a",), starting=starting)) == expected


@pytest.mark.parametrize(
    ("steps", "sinks", "expected"),
    [
        ([], [], set()),
        ([Step("s", 1, "sql", text="SELECT max(raw._offset) FROM raw")], [], {"_offset"}),
        ([Step("s", 1, "sql", text="SELECT my_offset, x_key FROM raw")], [], set()),
        ([Step("s", 1, "select", columns=("string(_key) AS k",))], [], {"_key"}),
        ([Step("s", 1, "watermark", watermark=Watermark("_timestamp", "1 minute"))], [], {"_timestamp"}),
        ([Step("s", 1, "python", text="a.py:f")], [], set(METADATA_COLUMNS)),
        ([], [Sink("o", 1, "topic", "raw", topic="x.{_partition}", key="_key")], {"_key", "_partition"}),
        ([], [Sink("o", 1, "parquet", "raw", path="p", partition_by=("_topic",))], {"_topic"}),
    ],
)
def test_only_metadata_that_is_named_is_read(steps: list[Step], sinks: list[Sink], expected: set[str]) -> None:
    pipeline = Pipeline("p", 1, path="p.yml", sources=(RAW,), steps=tuple(steps), sinks=tuple(sinks))
    assert set(metadata_used(pipeline)) == expected

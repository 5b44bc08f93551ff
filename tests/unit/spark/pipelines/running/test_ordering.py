"""Pipelines that feed pipelines (R-SPK-8)."""

from __future__ import annotations

import pytest

from headrace.spark.pipelines.definition import Pipeline, Sink, Source
from headrace.spark.pipelines.running.ordering import feeds, stages


def pipeline(name: str, reads: str | Source, writes: str | Sink) -> Pipeline:
    source = reads if isinstance(reads, Source) else Source("in", 1, kind="topics", topics=(reads,))
    sink = writes if isinstance(writes, Sink) else Sink("out", 1, kind="topic", input="in", topic=writes)
    return Pipeline(name, 1, path=f"{name}.yml", sources=(source,), sinks=(sink,))


def test_what_feeds_goes_first_whatever_the_order_given() -> None:
    report, parse, enrich = pipeline("report", "c", "d"), pipeline("parse", "a", "b"), pipeline("enrich", "b", "c")
    assert stages([report, parse, enrich]) == [[parse], [enrich], [report]]


def test_those_that_do_not_feed_each_other_run_together() -> None:
    first, second, last = pipeline("one", "a", "b"), pipeline("two", "a", "c"), pipeline("three", "c", "d")
    assert stages([first, second, last]) == [[first, second], [last]]


def test_a_circle_is_one_stage() -> None:
    circle = [pipeline("one", "a", "b"), pipeline("two", "b", "a")]
    assert stages(circle) == [circle]


PATTERN = Source("in", 1, kind="topics", pattern=r"logs\..*")
PARQUET = Sink("out", 1, kind="parquet", input="in", path="/data/out")
FILES = Source("in", 1, kind="files", files="/data/out/*.parquet", format="parquet")
TABLE = Source("in", 1, kind="table", topics=("users",))


@pytest.mark.parametrize(
    ("writes", "reads", "expected"),
    [
        ("logs.errors", PATTERN, True),
        ("metrics", PATTERN, False),
        ("logs.{service}", "logs.mail", True),
        ("logs.{service}", "other.mail", False),
        ("logs.{service}", "logsXmail", False),
        ("users", TABLE, True),
        (PARQUET, FILES, True),
        (PARQUET, "data", False),
        (Sink("out", 1, kind="console", input="in"), "in", False),
    ],
)
def test_what_feeds_what(writes: str | Sink, reads: str | Source, expected: bool) -> None:
    assert feeds(pipeline("writer", "x", writes), pipeline("reader", reads, "y")) is expected

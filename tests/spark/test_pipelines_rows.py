"""Rows that leave a pipeline on the way because they are late, and records that do not fit their schema."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.pipelines.checking.records import check_records
from headrace.spark.pipelines.running.progress import late_in
from tests.spark.conftest import MakeTopic
from tests.spark.pipeline_runs import Runs, objects
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATE = """\
name: windows
sources:
  orders:
    topic: {topic}
    format: json
    schema: id bigint, at timestamp
    watermark: {{column: at, delay: 1 minute}}
    late_rows: {topic}.late
    dead_letter: {topic}.dead
    options: {{maxOffsetsPerTrigger: "2"}}
steps:
  - name: counted
    sql: |
      SELECT window.start AS minute, collect_list(id) AS ids
      FROM orders GROUP BY window(at, '1 minute')
sinks:
  counted: {{from: counted, topic: {topic}.counted, create: {{partitions: 1}}}}
"""


@pytest.fixture
def runs(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Runs:
    return Runs(spark, bootstrap, tmp_path)


def order(number: int, time: str) -> str:
    return json.dumps({"id": number, "at": f"2026-03-01T{time}Z"})


def test_late_rows_are_in_their_topic_or_in_a_window_never_in_both(
    runs: Runs, topics: Topics, make_topic: MakeTopic
) -> None:
    """Batches of two: rows of batch N are judged by the watermark of N-1, as Spark's operators do it."""
    topic = make_topic()
    times = ["10:00:10", "10:05:00"]  # the watermark is 10:04 from the next batch on
    times += ["10:00:20", "10:00:21"]  # and judges rows of the batch after that
    times += ["10:00:30", "10:06:00"]
    times += ["10:04:00", "10:04:01"]  # exactly at the watermark, and after it
    times += ["11:00:00", "11:00:01"]
    topics.send(topic, [order(number, time) for number, time in enumerate(times)])
    pipeline = runs.load("windows", LATE.format(topic=topic))
    (reports,) = runs.once(pipeline).values()
    assert _ids(topics, topic) == ([0, 1, 2, 3, 5, 7], [4, 6])
    headers = [dict(one.headers or ()) for one in topics.read(f"{topic}.late", range(1))]
    assert headers[1]["headrace.error.reason"] == b"late: at is not after the watermark 2026-03-01T10:04:00.000Z"
    assert headers[1]["headrace.origin.offset"] == b"6"
    assert [sum(map(late_in, reports)), sum(map(_dropped, reports))] == [2, 0]
    # The next run goes on with the watermark of the checkpoint.
    topics.send(topic, [order(10, "10:30:00"), order(11, "12:00:00"), "{"])
    runs.once(pipeline)
    assert _ids(topics, topic) == ([0, 1, 2, 3, 5, 7, 8, 9], [4, 6, 10])
    assert len(topics.read(f"{topic}.dead", range(1))) == 1


def _ids(topics: Topics, topic: str) -> tuple[list[int], list[int]]:
    counted = [number for window in objects(topics, f"{topic}.counted") for number in window["ids"]]
    return sorted(counted), sorted(one["id"] for one in objects(topics, f"{topic}.late"))


def _dropped(report: dict[str, Any]) -> int:
    return sum(int(one["numRowsDroppedByWatermark"]) for one in report["stateOperators"])


def test_records_that_do_not_fit_the_schema_any_more_are_told(
    runs: Runs, topics: Topics, make_topic: MakeTopic, bootstrap: str
) -> None:
    topic = make_topic()
    topics.send(topic, ['{"id": "new", "amount": 3}'] * 3)
    source = f'{{topic: {topic}, format: json, schema: "id bigint, cents bigint"}}'
    pipeline = runs.load(
        "changed", f"sources:\n  orders: {source}\nsinks:\n  out: {{from: orders, console: true}}\n"
    )
    with closing(BlockingCluster(ClusterSettings(bootstrap))) as cluster:
        told = check_records(pipeline, runs.spark, cluster, bootstrap)
    assert [problem.what for problem in told] == [
        "3 of the latest 3 records of orders cannot be decoded: 'id' is not a value of type bigint: new",
        "source orders: records have fields that the schema does not name: amount",
        "source orders: none of the latest 3 records has cents",
    ]
    assert {(problem.line, problem.warning) for problem in told} == {(2, True)}

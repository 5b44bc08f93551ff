"""Rows that leave a pipeline on the way: late ones, those that a user's function fails for, and misfits."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.pipelines.checking.records import check_records
from headrace.spark.pipelines.running.progress import late_in, malformed_in
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


VISITS = """\
name: visits
sources:
  views:
    topic: {topic}
    format: json
    schema: id bigint, at timestamp, user string
    watermark: {{column: at, delay: 1 minute}}
    late_rows: {topic}.late
    options: {{maxOffsetsPerTrigger: "2"}}
steps:
  - name: visits
    sql: |
      SELECT user, session_window.start AS since, session_window.end AS until, sort_array(collect_list(id)) AS ids
      FROM views GROUP BY session_window(at, '2 minutes'), user
sinks:
  visits: {{from: visits, topic: {topic}.counted, create: {{partitions: 1}}}}
"""


def test_sessions_grow_and_merge_over_batches_and_runs_without_late_rows(
    runs: Runs, topics: Topics, make_topic: MakeTopic
) -> None:
    """Batches of two, judged as the windows above are."""
    topic = make_topic()
    seen = [("ann", "10:00:00"), ("bob", "10:00:30")]
    seen += [("ann", "10:03:30"), ("bob", "10:01:00")]  # a second session of ann, and bob's goes on
    seen += [("ann", "10:01:45"), ("cem", "10:04:00")]  # between both of ann's: they become one
    seen += [("bob", "10:02:00"), ("bob", "10:02:45")]  # the watermark of the batch before is 10:02:30
    seen += [("ann", "10:20:00"), ("bob", "10:20:00")]
    topics.send(topic, [view(number, *one) for number, one in enumerate(seen)])
    pipeline = runs.load("visits", VISITS.format(topic=topic))
    (reports,) = runs.once(pipeline).values()
    first = {
        "ann": ("10:00:00", "10:05:30", [0, 2, 4]),
        "bob": ("10:00:30", "10:04:45", [1, 3, 7]),
        "cem": ("10:04:00", "10:06:00", [5]),
    }
    assert _visits(topics, topic) == sorted((user, *visit) for user, visit in first.items())
    assert sum(map(_dropped, reports)) == 0
    # Sessions that are open go on in the next run, and what is late for the last one is late.
    topics.send(topic, [view(10, "ann", "10:21:30"), view(11, "cem", "10:18:00"), view(12, "cem", "11:00:00")])
    runs.once(pipeline)
    second = [("ann", "10:20:00", "10:23:30", [8, 10]), ("bob", "10:20:00", "10:22:00", [9])]
    assert [visit for visit in _visits(topics, topic) if visit[1] > "10:10"] == second
    assert len(objects(topics, f"{topic}.counted")) == 5
    assert sorted(one["id"] for one in objects(topics, f"{topic}.late")) == [6, 11]


def view(number: int, user: str, time: str) -> str:
    return json.dumps({"id": number, "user": user, "at": f"2026-03-01T{time}Z"})


def _visits(topics: Topics, topic: str) -> list[tuple[str, str, str, list[int]]]:
    rows = objects(topics, f"{topic}.counted")
    return sorted((row["user"], row["since"][11:19], row["until"][11:19], row["ids"]) for row in rows)


ROWS = """\
name: {topic}
sources:
  orders:
    topic: {topic}
    format: json
    schema: id bigint, at timestamp, cents bigint, items bigint
    watermark: {{column: at, delay: 1 minute}}
steps:
  - {{name: some, sql: "SELECT *, id * 10 AS number FROM orders"}}
  - {{name: known, from: some, filter: "id < 100"}}
  - name: rated
    from: known
    python_rows: rating.py:rate
    schema: id bigint, at timestamp, each double, label string
  - name: per_minute
    sql: |
      SELECT window.start AS minute, collect_list(id) AS ids, sum(each) AS sum
      FROM rated GROUP BY window(at, '1 minute')
  - {{name: slim, from: rated, select: [id, at, each, _offset AS place]}}
  - name: halved
    from: slim
    python_rows: rating.py:halve
    schema: id bigint, at timestamp, half double NOT NULL
  - name: halves
    sql: SELECT window.start AS minute, sum(half) AS sum FROM halved GROUP BY window(at, '1 minute')
sinks:
  rated: {{from: rated, topic: {topic}.rated, create: {{partitions: 1}}}}
  per_minute: {{from: per_minute, topic: {topic}.minutes, create: {{partitions: 1}}}}
  halves: {{from: halves, topic: {topic}.halves, create: {{partitions: 1}}}}
"""
RATING = """\
def rate(row):
    with open({calls!r}, "a") as calls:
        calls.write(f"{{row['id']}}\\n")
    if row["cents"] < 0:
        return None
    if row["cents"] == 0:
        return {{"each": "nothing"}}
    rated = {{"id": row["id"], "at": row["at"], "each": row["cents"] / row["items"]}}
    return [rated | {{"label": row["at"].strftime("%H:%M")}} for _ in range(row["cents"] // 100 or 1)]


def halve(row):
    return {{"id": row["id"], "at": row["at"], "half": row["each"] / 2 if row["place"] != 4 else None}}
"""


def test_records_for_which_python_fails_are_dead_letters_and_windows_behind_it_close(
    runs: Runs, topics: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, calls = make_topic(), tmp_path / "calls"
    (tmp_path / "rating.py").write_text(RATING.format(calls=str(calls)))
    cents_and_items = [(10, 4), (3, 0), (0, 1), (-1, 1), (8, 2), (200, 50), (5, 5)]
    clocks = ["10:00:01", "10:00:02", "10:00:03", "10:00:04", "10:00:05", "10:00:06", "11:00:00"]
    values = [
        json.dumps({"id": number, "at": f"2026-03-01T{clocks[number]}Z", "cents": cents, "items": items})
        for number, (cents, items) in enumerate(cents_and_items)
    ]
    topics.send(topic, [*values, "{"], keys=[f"k{number}" for number in range(8)])
    (reports,) = runs.once(runs.load("rows", ROWS.format(topic=topic))).values()
    rated = sorted((row["id"], row["each"], row["label"]) for row in objects(topics, f"{topic}.rated"))
    twice = (5, 4.0, "10:00")
    assert rated == [(0, 2.5, "10:00"), (4, 4.0, "10:00"), twice, twice, (6, 1.0, "11:00")]
    (window,) = objects(topics, f"{topic}.minutes")
    assert (sorted(window["ids"]), window["sum"]) == ([0, 4, 5, 5], 14.5)
    (half,) = objects(topics, f"{topic}.halves")
    assert half["sum"] == 5.25
    letters = sorted(topics.read(f"{topic}.dead-letter", range(1)), key=lambda one: one.key or b"")
    assert [(one.key, one.value) for one in letters] == [
        (b"k1", values[1].encode()),
        (b"k2", values[2].encode()),
        (b"k4", values[4].encode()),
        (b"k7", b"{"),
    ]
    divided, nothing, halved, _ = (dict(one.headers or ()) for one in letters)
    assert divided["headrace.error.reason"] == b"ZeroDivisionError: division by zero (rating.py, line 8)"
    assert divided["headrace.error.exception"] == b"ZeroDivisionError"
    assert (divided["headrace.error.step"], divided["headrace.error.source"]) == (b"rated", b"orders")
    assert (divided["headrace.origin.topic"], divided["headrace.origin.offset"]) == (topic.encode(), b"1")
    assert nothing["headrace.error.reason"] == b"'each' is not a value of type double: 'nothing'"
    assert (halved["headrace.error.step"], halved["headrace.error.exception"]) == (b"halved", b"Misfit")
    assert sum(map(malformed_in, reports)) == 4
    assert sorted(calls.read_text().split()) == list("0123456"), "once for each row"


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

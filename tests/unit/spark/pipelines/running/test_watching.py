"""What is new in a query's reports, and what it is doing, from what Spark says of it."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark.pipelines.running.watching import WatchedQuery


class JavaReport:
    def __init__(self, batch: int, second: int, rows: int = 0, *, done: bool = True) -> None:
        self._text = json.dumps(
            {
                "batchId": batch,
                "numInputRows": rows,
                "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
                "durationMs": {"triggerExecution": 5, **({"addBatch": 3} if done else {})},
            }
        )
        self.read = 0

    def json(self) -> str:
        self.read += 1
        return self._text


class SparkQuery:
    """As far as the watch uses it; `_jsq` is the object on Java's side."""

    def __init__(self) -> None:
        self._jsq = self
        self.reports: list[JavaReport] = []
        self.status: dict[str, Any] = {}

    def recentProgress(self) -> list[JavaReport]:  # noqa: N802
        return self.reports


@pytest.fixture
def query() -> SparkQuery:
    return SparkQuery()


@pytest.fixture
def watch(query: SparkQuery) -> WatchedQuery:
    return WatchedQuery(cast(StreamingQuery, query))


def test_a_report_is_seen_once_and_read_once(query: SparkQuery, watch: WatchedQuery) -> None:
    query.reports = [JavaReport(number, number, 10) for number in range(3)]
    assert [report["batchId"] for report in watch.new_reports()] == [0, 1, 2]
    assert watch.new_reports() == []
    query.reports.append(JavaReport(3, 3, 10))
    assert [report["batchId"] for report in watch.new_reports()] == [3]
    assert [report.read for report in query.reports[:2]] == [1, 1]


def test_a_report_while_it_waits_is_no_batch(query: SparkQuery, watch: WatchedQuery) -> None:
    query.reports = [JavaReport(0, 0, 10), JavaReport(1, 10, done=False)]
    assert [report["batchId"] for report in watch.new_reports()] == [0]
    query.reports.append(JavaReport(1, 15))  # no new rows, but windows that have closed
    assert [report["batchId"] for report in watch.new_reports()] == [1]


@pytest.mark.parametrize(
    ("available", "message", "expected"),
    [
        (False, "Initializing sources", "starting"),
        (False, "Getting offsets from source", "starting"),
        (True, "Getting offsets from source", "running"),
        (False, "Processing new data", "running"),
        (False, "No new data but cleaning up state", "running"),
        (False, "Waiting for data to arrive", "waiting"),
        (False, "Waiting for next trigger", "waiting"),
    ],
)
def test_what_it_is_doing(
    query: SparkQuery, watch: WatchedQuery, available: bool, message: str, expected: str
) -> None:
    query.status = {"isDataAvailable": available, "message": message}
    assert watch.phase == expected


def test_it_starts_only_once(query: SparkQuery, watch: WatchedQuery) -> None:
    query.status = {"isDataAvailable": False, "message": "Waiting for data to arrive"}
    assert watch.phase == "waiting"
    query.status = {"isDataAvailable": False, "message": "Getting offsets from source"}
    assert watch.phase == "waiting"

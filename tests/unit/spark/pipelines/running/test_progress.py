"""Progress reports as Spark writes them become rows, rates and lag."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.spark.pipelines.running.metrics import exposition
from headrace.spark.pipelines.running.progress import QueryProgress, carried_over, kept_rows, totals


def report(
    batch: int = 0,
    rows: int = 10,
    second: int = 0,
    took_ms: int = 500,
    malformed: int | None = None,
    **source: Any,
) -> dict[str, Any]:
    return {
        "runId": "r",
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "numInputRows": rows,
        "durationMs": {"triggerExecution": took_ms, "addBatch": took_ms},
        "sources": [source] if source else [],
        "observedMetrics": {} if malformed is None else {"malformed.raw": {"count": malformed}},
    }


def seen(*reports: dict[str, Any]) -> QueryProgress:
    progress = QueryProgress("logs", "logs.errors")
    for one in reports:
        progress.see(one)
    return progress


def test_rows_and_batches_add_up() -> None:
    row = seen(report(0, 10), report(1, 30, second=1, malformed=2), report(2, 0, second=2, malformed=1)).as_row()
    assert (row["rows"], row["batches"], row["malformed"], row["batch_seconds"]) == (40, 3, 3, 0.5)


def test_the_rate_counts_the_waiting_between_batches() -> None:
    # 100 rows in the second from 0 to 1, and 100 in the second from 9 to 10: ten seconds for 200.
    progress = seen(report(0, 100, 0, 1000), report(1, 100, 9, 1000))
    assert progress.rows_per_second == pytest.approx(200 / 9, rel=0.15)


def test_the_rate_forgets_what_is_long_past() -> None:
    progress = seen(report(0, 1_000_000, 0, 1000), report(1, 100, 40, 1000))
    assert progress.rows_per_second == pytest.approx(100)
    progress.quiet()
    assert progress.rows_per_second == 0


@pytest.mark.parametrize("as_text", [False, True])
def test_lag_is_what_lies_beyond_the_end_of_the_batch(as_text: bool) -> None:
    end, latest = {"a": {"0": 90, "1": 40}}, {"a": {"0": 100, "1": 40}}
    offsets: dict[str, Any] = {"endOffset": end, "latestOffset": latest}
    if as_text:
        offsets = {name: json.dumps(offset) for name, offset in offsets.items()}
    assert seen(report(**offsets)).lag == 10


def test_lag_stays_when_a_report_does_not_say() -> None:
    known = report(endOffset={"a": {"0": 1}}, latestOffset={"a": {"0": 5}})
    assert seen(known, report(1)).lag == 4
    assert seen(report(0)).lag is None
    files = report(endOffset={"logOffset": 3}, latestOffset=None)
    assert seen(files).lag is None


def test_a_pipeline_is_as_far_as_its_slowest_query() -> None:
    first = seen(report(0, 10, endOffset={"a": {"0": 1}}, latestOffset={"a": {"0": 5}}))
    second = seen(report(0, 30, malformed=1, endOffset={"a": {"0": 3}}, latestOffset={"a": {"0": 5}}))
    found = totals([first, second])
    assert (found["rows"], found["lag"], found["malformed"], found["batches"]) == (30, 4, 1, 2)


def test_late_rows_are_those_that_operations_with_state_have_dropped() -> None:
    operators = [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 0}, {}]
    progress = seen(report() | {"stateOperators": operators}, report(1, second=1))
    assert (progress.late, totals([progress])["late"]) == (2, 2)
    assert 'headrace_pipeline_late_total{pipeline="logs",query="logs.errors"} 2\n' in exposition([progress])


def test_metrics_name_the_pipeline_and_the_query() -> None:
    progress = seen(report(0, 10, malformed=2))
    progress.state = "running"
    text = exposition([progress])
    where = '{pipeline="logs",query="logs.errors"}'
    assert f"headrace_pipeline_rows_total{where} 10\n" in text
    assert f"headrace_pipeline_malformed_total{where} 2\n" in text
    assert f"headrace_pipeline_up{where} 1\n" in text
    assert "headrace_pipeline_lag_records{" not in text  # not known yet
    assert text.count("# TYPE ") == text.count("# HELP ")


def test_a_run_continues_what_the_run_before_has_counted() -> None:
    first = QueryProgress(
        "logs", "logs.errors", batches=3, rows=40, late=2, lag=7, began="2026-03-01T10:00:00+00:00"
    )
    facts = {"checkpoint": "/here", "queries": kept_rows([first])}
    before = carried_over(json.loads(json.dumps(facts)), "/here")
    second = QueryProgress("logs", "logs.errors", rows=2, batches=1, earlier=before["logs.errors"])
    (row,) = kept_rows([second])
    assert (row["rows"], row["batches"], row["late"], row["lag"]) == (42, 4, 2, 7)
    assert row["since"] == "2026-03-01T10:00:00+00:00"
    assert totals([second.over_all_runs()])["since"] == row["since"]
    assert second.as_row()["rows"] == 2, "the screen shows this run"
    assert carried_over(facts, "/elsewhere") == {}, "another checkpoint starts over"
    assert carried_over({"checkpoint": "/here", "queries": [{"query": "of an older version"}]}, "/here") == {}

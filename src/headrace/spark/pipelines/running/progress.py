"""How far a pipeline is: Spark's progress reports of its queries, summed up for a screen, a file or a scraper.

A report is the JSON that Spark writes after every micro-batch. Rows are the rows that a batch read. Lag is how
many records were in the topics beyond the end of the last batch when it was planned: Spark puts both offsets into
the report. Rates are over the last few batches, waiting included, so that a bar does not jump with every batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from headrace.spark.lag import lag as lag_in
from headrace.spark.pipelines.definition import LATE, MALFORMED

Report = Mapping[str, Any]
QueryState = Literal["starting", "running", "waiting", "restarting", "finished", "stopped", "failed"]

RATE_WINDOW_S = 10.0
COUNTERS = ("batches", "rows", "malformed", "late", "restarts")


@dataclass(slots=True)
class QueryProgress:
    """The progress of one streaming query, over all its batches since the pipeline was started."""

    pipeline: str
    name: str
    state: QueryState = "starting"
    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    earlier: QueryProgress | None = None
    """The progress of all earlier runs with the same checkpoint."""
    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    lag: int | None = None
    batch_seconds: float | None = None
    malformed: int = 0
    late: int = 0
    """Rows that came after their window, or their time to be joined or deduplicated, had been closed."""
    restarts: int = 0
    problem: str | None = None
    """Why the query is restarted."""
    _recent: deque[tuple[float, int]] = field(default_factory=deque, repr=False)
    """When batches ended, and their rows."""

    def see(self, report: Report) -> None:
        rows = int(report.get("numInputRows") or 0)
        took_s = _seconds(report)
        self.batches += 1
        self.rows += rows
        self.batch_seconds = took_s
        self.malformed += malformed_in(report)
        self.late += late_in(report)
        self.lag = self.lag if (behind := lag_in(report)) is None else behind
        self._rate(_started_s(report), took_s, rows)

    def _rate(self, started_s: float, took_s: float, rows: int) -> None:
        ended_s = started_s + took_s
        self._recent.append((ended_s, rows))
        while len(self._recent) > 1 and self._recent[0][0] < ended_s - RATE_WINDOW_S:
            self._recent.popleft()
        since_s = min(started_s, self._recent[0][0])
        self.rows_per_second = sum(count for _, count in self._recent) / max(ended_s - since_s, 0.001)

    def over_all_runs(self) -> QueryProgress:
        """The progress including the counts of earlier runs, since the first of them."""
        before = self.earlier
        if before is None:
            return self
        counts = {name: getattr(self, name) + getattr(before, name) for name in COUNTERS}
        lag = before.lag if self.lag is None else self.lag
        return replace(self, began=before.began, lag=lag, earlier=None, **counts)

    def quiet(self) -> None:
        """Reset the rate: no rows have arrived for a while."""
        self._recent.clear()
        self.rows_per_second = 0.0

    def as_row(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "query": self.name,
            "state": self.state,
            "batches": self.batches,
            "rows": self.rows,
            "rows_per_second": round(self.rows_per_second, 1),
            "lag": self.lag,
            "batch_seconds": None if self.batch_seconds is None else round(self.batch_seconds, 3),
            "malformed": self.malformed,
            "late": self.late,
            "restarts": self.restarts,
            "problem": self.problem,
        }


def kept_rows(queries: Iterable[QueryProgress]) -> list[dict[str, Any]]:
    """Rows for the run file: over all runs, and since when."""
    whole = [one.over_all_runs() for one in queries]
    return [{**one.as_row(), "since": one.began} for one in whole]


def carried_over(facts: Mapping[str, Any], checkpoint: str) -> dict[str, QueryProgress]:
    """The counts of the last run by query; nothing if it had another checkpoint."""
    if facts.get("checkpoint") != checkpoint:
        return {}
    rows = [row for row in facts.get("queries") or () if row.get("since")]
    return {
        row["query"]: QueryProgress(
            row["pipeline"],
            row["query"],
            began=row["since"],
            lag=row["lag"],
            **{name: row[name] for name in COUNTERS},
        )
        for row in rows
    }


def malformed_in(report: Report) -> int:
    return _observed(report, MALFORMED)


def _observed(report: Report, metric: str) -> int:
    observed = report.get("observedMetrics") or {}
    counts = [found for name, found in observed.items() if name.partition(".")[0] == metric]
    return sum(int((found or {}).get("count") or 0) for found in counts)


def late_in(report: Report) -> int:
    """The rows that were sent to a topic as late, and those that Spark dropped. For a window Spark counts rows
    that it has combined within a task as one."""
    dropped = (one.get("numRowsDroppedByWatermark") for one in report.get("stateOperators") or ())
    return _observed(report, LATE) + sum(int(one or 0) for one in dropped)


def _seconds(report: Report) -> float:
    return float((report.get("durationMs") or {}).get("triggerExecution") or 0) / 1000


def _started_s(report: Report) -> float:
    return datetime.fromisoformat(str(report["timestamp"]).replace("Z", "+00:00")).timestamp()


def totals(rows: Iterable[QueryProgress]) -> dict[str, Any]:
    """The figures of a whole pipeline. Its queries all read the same records: the busiest one has the number."""
    all_rows = list(rows)
    return {
        "rows": max((one.rows for one in all_rows), default=0),
        "rows_per_second": round(max((one.rows_per_second for one in all_rows), default=0.0), 1),
        "lag": max((one.lag for one in all_rows if one.lag is not None), default=None),
        "malformed": sum(one.malformed for one in all_rows),
        "late": sum(one.late for one in all_rows),
        "batches": sum(one.batches for one in all_rows),
        "since": min((one.began for one in all_rows), default=None),
    }

"""A streaming query as the runner sees it: whether a batch is running, new reports, its end.

Spark keeps the last hundred reports of a query. Turned into Python each costs some forty calls to Java, several
times a second; so only new reports are fetched, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark.pipelines.running.progress import Report

Phase = Literal["starting", "running", "waiting"]
"""The phase of a query. "running" means that a batch is being processed."""
AT_WORK = ("Processing new data", "No new data but")
"""Beginnings of the status during a batch. One without new rows still writes: windows that have closed."""
IDLE = "Waiting for"


class Startable(Protocol):
    """A query that can be started, as `compiling` makes them."""

    @property
    def name(self) -> str: ...
    def start(self, trigger: Mapping[str, Any]) -> StreamingQuery: ...


class WatchedPlan:
    """Watches the queries that it starts."""

    def __init__(self, plan: Startable) -> None:
        self._plan = plan

    @property
    def name(self) -> str:
        return self._plan.name

    def start(self, trigger: Mapping[str, Any]) -> WatchedQuery:
        return WatchedQuery(self._plan.start(trigger))


class WatchedQuery:
    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen_until = ""
        self._begun = False

    @property
    def active(self) -> bool:
        return self._query.isActive

    @property
    def phase(self) -> Phase:
        status = self._query.status
        message = str(status["message"])
        busy = bool(status["isDataAvailable"]) or message.startswith(AT_WORK)
        self._begun = self._begun or busy or message.startswith(IDLE)
        return "running" if busy else "waiting" if self._begun else "starting"

    def new_reports(self) -> list[Report]:
        """The reports of batches that were done since the last call, in their order."""
        kept = self._query._jsq.recentProgress()
        fresh: list[Report] = []
        for index in reversed(range(len(kept))):
            report = json.loads(kept[index].json())
            if report["timestamp"] <= self._seen_until:
                break
            fresh.insert(0, report)
        if fresh:
            self._seen_until = fresh[-1]["timestamp"]
        return [report for report in fresh if is_batch(report)]

    def problem(self) -> BaseException | None:
        """The error that ended it."""
        return self._query.exception()

    def stop(self) -> None:
        self._query.stop()


def is_batch(report: Report) -> bool:
    """Whether a report is about a batch: a waiting query sometimes reports the number of the next batch."""
    return bool(report.get("numInputRows")) or "addBatch" in (report.get("durationMs") or {})

"""Runs the queries of pipelines and watches them: starts them, restarts them after transient failures, and stops
them cleanly.

Rules:
- One query that fails for good ends the run; one that failed because a broker was down is restarted, with growing
  delays, for as long as the pipeline runs continuously.
- Stopping takes two steps. The stop file makes the sources return nothing new, so that the current batch ends
  and is committed; then the queries are stopped. Without the first step that batch would be written twice.
- All calls to Spark are made by the thread that runs `Runner.run`; a signal handler only sets `stop`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.model.backoff import backoff_seconds
from headrace.spark.errors import SourceError
from headrace.spark.pipelines.definition import Pipeline, PipelineError
from headrace.spark.pipelines.running.progress import QueryProgress, Report
from headrace.spark.pipelines.running.run_files import RunFiles
from headrace.spark.pipelines.running.watching import Phase

POLL_S = 0.25
QUIET_AFTER_S = 5.0
GRACE_S = 60.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
MOST_HICCUPS = 3
MOST_STARTING = max(2, os.cpu_count() or 2)
"""Queries that start at the same time: each starts several Python processes, which have ten seconds."""
IDLE_LOOKS = 2
"""How many checks in a row must find a query idle: one may fall between two triggers."""

CANNOT_START = (PySparkException, Py4JError, PipelineError, SourceError, OSError)
AVAILABLE_NOW: Mapping[str, Any] = {"availableNow": True}


class Query(Protocol):
    """A running query, see `watching`."""

    @property
    def active(self) -> bool: ...
    @property
    def phase(self) -> Phase: ...
    def new_reports(self) -> Sequence[Report]: ...
    def problem(self) -> BaseException | None: ...
    def stop(self) -> None: ...


class Plan(Protocol):
    @property
    def name(self) -> str: ...
    def start(self, trigger: Mapping[str, Any]) -> Query: ...


class Failure(NamedTuple):
    """Why a query ended, for people. A transient failure may not happen again in a retry."""

    pipeline: Pipeline
    query: str
    message: str
    passing: bool
    hiccup: bool = False
    """Whether the only cause was an overloaded machine: worth another attempt even in a run that is to end."""


Explain = Callable[[BaseException, Pipeline, str], Failure]
Changed = Callable[[Sequence[QueryProgress]], None]


@dataclass(slots=True)
class Job:
    """One pipeline of a run."""

    pipeline: Pipeline
    plans: Sequence[Plan]
    files: RunFiles
    trigger: Mapping[str, Any]
    """The trigger as `DataStreamWriter.trigger` takes it."""

    @property
    def once(self) -> bool:
        return "availableNow" in self.trigger


@dataclass(slots=True)
class Running:
    job: Job
    plan: Plan
    progress: QueryProgress
    query: Query | None = None
    last_seen_s: float = 0.0
    resume_at_s: float = 0.0
    idle_looks: int = 0
    failed_in_a_row: int = 0

    @property
    def ended(self) -> bool:
        return self.progress.state in ("finished", "stopped", "failed")


@dataclass(slots=True)
class Runner:
    jobs: Sequence[Job]
    explain: Explain
    changed: Changed
    """Called after every check, from the thread that runs."""
    progress: dict[str, QueryProgress] = field(default_factory=dict)
    """The progress of each query, shared by the runs of a schedule, so that figures continue."""
    before: Mapping[str, QueryProgress] = field(default_factory=dict)
    """The progress from an earlier run of the command."""
    running: list[Running] = field(default_factory=list)

    def run(self, stop: threading.Event) -> Failure | None:
        """Run until everything has ended, `stop` is set, or something fails for good; returns that failure."""
        self.running = [self._prepare(job, plan) for job in self.jobs for plan in job.plans]
        self._show()
        failure = self._look()
        while failure is None and not stop.is_set() and not all(one.ended for one in self.running):
            stop.wait(POLL_S)
            failure = self._look()
        if failure is not None or stop.is_set():
            self._stop_all()
        self._show()
        return failure

    def _prepare(self, job: Job, plan: Plan) -> Running:
        fresh = QueryProgress(job.pipeline.name, plan.name, earlier=self.before.get(plan.name))
        progress = self.progress.setdefault(plan.name, fresh)
        progress.state = "starting"
        return Running(job, plan, progress)

    def _start(self, one: Running) -> Failure | None:
        starting = [other for other in self.running if other.query and other.progress.state == "starting"]
        if time.monotonic() < one.resume_at_s or len(starting) >= MOST_STARTING:
            return None
        try:
            one.query = one.plan.start(one.job.trigger)
        except CANNOT_START as problem:
            return self._failure(one, problem)
        one.progress.state = "starting"
        one.last_seen_s = time.monotonic()
        return None

    def _failure(self, one: Running, problem: BaseException) -> Failure:
        return self.explain(problem, one.job.pipeline, one.plan.name)

    def _look(self) -> Failure | None:
        for one in self.running:
            failure = self._look_at(one)
            if failure is not None and not self._try_later(one, failure):
                one.progress.state, one.progress.problem = "failed", None
                return failure
        self._show()
        return None

    def _look_at(self, one: Running) -> Failure | None:
        if one.ended:
            return None
        if one.query is None:
            return self._start(one)
        active = one.query.active  # before the reports, so that they include everything up to now
        self._see_reports(one, one.query)
        if active:
            one.progress.state = one.query.phase
            return None
        problem = one.query.problem()
        if problem is None:
            one.progress.state = "finished" if one.job.once else "stopped"
            return None
        return self._failure(one, problem)

    def _see_reports(self, one: Running, query: Query) -> None:
        for report in query.new_reports():
            one.progress.see(report)
            one.last_seen_s = time.monotonic()
            one.failed_in_a_row, one.progress.problem = 0, None
        if time.monotonic() - one.last_seen_s > QUIET_AFTER_S:
            one.progress.quiet()

    def _try_later(self, one: Running, failure: Failure) -> bool:
        again = failure.hiccup and one.failed_in_a_row < MOST_HICCUPS
        if not again and (not failure.passing or one.job.once):
            return False
        pause_s = backoff_seconds(FIRST_PAUSE_S, LONGEST_PAUSE_S, one.failed_in_a_row)
        one.failed_in_a_row += 1
        one.progress.restarts += 1
        one.progress.state, one.progress.problem = "restarting", failure.message
        one.query, one.resume_at_s = None, time.monotonic() + pause_s
        return True

    def _stop_all(self) -> None:
        for job in self.jobs:
            job.files.stop_request.touch()
        deadline_s = time.monotonic() + GRACE_S
        while time.monotonic() < deadline_s and not self._all_idle():
            self._show()
            time.sleep(POLL_S)
        for one in self.running:
            if one.query is not None and one.query.active:
                one.query.stop()
                self._see_reports(one, one.query)
            if not one.ended:
                one.progress.state = "stopped"
        for job in self.jobs:
            job.files.stop_request.unlink(missing_ok=True)

    def _all_idle(self) -> bool:
        for one in self.running:
            if one.query is None or not one.query.active:
                one.idle_looks = IDLE_LOOKS
            else:
                self._see_reports(one, one.query)
                one.idle_looks = 0 if one.query.phase == "running" else one.idle_looks + 1
        return all(one.idle_looks >= IDLE_LOOKS for one in self.running)

    def _show(self) -> None:
        self.changed([one.progress for one in self.running])

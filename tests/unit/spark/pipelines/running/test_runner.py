"""The runner over queries that a test drives: states, restarts, and stopping in two steps."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.pipelines.definition import Pipeline
from headrace.spark.pipelines.running import runner
from headrace.spark.pipelines.running.progress import QueryProgress
from headrace.spark.pipelines.running.run_files import RunFiles
from headrace.spark.pipelines.running.runner import AVAILABLE_NOW, MOST_STARTING, Failure, Job, Runner
from headrace.spark.pipelines.running.watching import Phase

LOGS = Pipeline("logs", 1, path="logs.yml")
CONTINUOUS: Mapping[str, Any] = {"processingTime": "0 seconds"}


class DrivenQuery:
    """A query that goes through the given states, one a look, and stays in the last."""

    def __init__(self, *states: str, reports: Sequence[dict[str, Any]] = ()) -> None:
        self._states = list(states)
        self._reports = list(reports)
        self.stopped_when: str | None = None

    @property
    def state(self) -> str:
        return "ended" if self.stopped_when else self._states[0]

    @property
    def active(self) -> bool:
        if len(self._states) > 1:
            self._states.pop(0)
        return self.state in ("busy", "idle")

    @property
    def phase(self) -> Phase:
        return "running" if self.state == "busy" else "waiting"

    def new_reports(self) -> list[dict[str, Any]]:
        fresh, self._reports = self._reports, []
        return fresh

    def problem(self) -> BaseException | None:
        if self.state in ("broken", "away", "hiccup"):
            return RuntimeError(self.state)
        return None

    def stop(self) -> None:
        self.stopped_when = self._states[0]


class DrivenPlan:
    def __init__(self, name: str, *queries: DrivenQuery) -> None:
        self.name = name
        self.queries = list(queries)
        self.started: list[DrivenQuery] = []

    def start(self, trigger: Mapping[str, Any]) -> DrivenQuery:
        self.started.append(self.queries.pop(0))
        return self.started[-1]


def explain(problem: BaseException, pipeline: Pipeline, query: str) -> Failure:
    words = str(problem)
    return Failure(pipeline, query, words, passing=words in ("away", "hiccup"), hiccup=words == "hiccup")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "POLL_S", 0.001)
    monkeypatch.setattr(runner, "FIRST_PAUSE_S", 0.001)


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles("logs", tmp_path)


def run(
    files: RunFiles,
    plans: Sequence[DrivenPlan],
    trigger: Mapping[str, Any],
    stop_after_looks: int | None = None,
) -> tuple[Failure | None, list[QueryProgress]]:
    stop = threading.Event()
    looks = 0
    last: list[QueryProgress] = []

    def changed(progress: Sequence[QueryProgress]) -> None:
        nonlocal looks
        looks += 1
        last[:] = progress
        if looks == stop_after_looks:
            stop.set()

    failure = Runner([Job(LOGS, plans, files, trigger)], explain, changed).run(stop)
    return failure, last


def states(progress: Sequence[QueryProgress]) -> list[str]:
    return [one.state for one in progress]


def report(batch: int, rows: int) -> dict[str, Any]:
    time = "2026-01-01T00:00:00.000Z"
    return {"batchId": batch, "numInputRows": rows, "timestamp": time, "durationMs": {"triggerExecution": 5}}


def test_once_ends_when_every_query_has(files: RunFiles) -> None:
    reports = [report(0, 10), report(1, 5)]
    plans = [
        DrivenPlan("logs.a", DrivenQuery("busy", "busy", "ended", reports=reports)),
        DrivenPlan("logs.b", DrivenQuery("busy", "ended")),
    ]
    failure, progress = run(files, plans, AVAILABLE_NOW)
    assert failure is None
    assert states(progress) == ["finished", "finished"]
    assert (progress[0].rows, progress[0].batches) == (15, 2)


def test_a_failure_for_good_ends_all_and_says_why(files: RunFiles) -> None:
    other = DrivenQuery("idle")
    failure, progress = run(
        files,
        [DrivenPlan("logs.a", DrivenQuery("busy", "broken")), DrivenPlan("logs.b", other)],
        CONTINUOUS,
    )
    assert failure == Failure(LOGS, "logs.a", "broken", passing=False)
    assert states(progress) == ["failed", "stopped"]
    assert other.stopped_when == "idle"


def test_a_passing_failure_is_tried_again(files: RunFiles) -> None:
    plan = DrivenPlan("logs.a", DrivenQuery("busy", "away"), DrivenQuery("busy", "away"), DrivenQuery("idle"))
    failure, progress = run(files, [plan], CONTINUOUS, stop_after_looks=60)
    assert failure is None
    assert len(plan.started) == 3
    assert progress[0].restarts == 2
    assert progress[0].problem == "away"  # until a batch has been done
    assert states(progress) == ["stopped"]


def test_once_does_not_try_again(files: RunFiles) -> None:
    plan = DrivenPlan("logs.a", DrivenQuery("busy", "away"))
    failure, _ = run(files, [plan], AVAILABLE_NOW)
    assert failure is not None
    assert failure.message == "away"


def test_a_worker_that_came_too_late_is_no_reason_to_end(files: RunFiles) -> None:
    late = [DrivenQuery("busy", "hiccup") for _ in range(2)]
    plan = DrivenPlan("logs.a", *late, DrivenQuery("busy", "ended"))
    failure, progress = run(files, [plan], AVAILABLE_NOW)
    assert failure is None
    assert states(progress) == ["finished"]


def test_but_not_for_ever(files: RunFiles) -> None:
    plan = DrivenPlan("logs.a", *(DrivenQuery("busy", "hiccup") for _ in range(10)))
    failure, _ = run(files, [plan], AVAILABLE_NOW)
    assert failure is not None
    assert 1 < len(plan.started) < 10


def test_few_start_at_the_same_time(files: RunFiles) -> None:
    begun: list[str] = []
    most = 0

    class Slow(DrivenQuery):
        """Says for three looks that it is starting."""

        looks = 0

        @property
        def phase(self) -> Phase:
            nonlocal most
            most = max(most, len(begun))
            self.looks += 1
            if self.looks < 3:
                return "starting"
            if self.looks == 3:
                begun.pop()
            return "running"

    class Counted(DrivenPlan):
        def start(self, trigger: Mapping[str, Any]) -> DrivenQuery:
            begun.append(self.name)
            return super().start(trigger)

    plans = [Counted(f"logs.{number}", Slow(*["busy"] * 8, "ended")) for number in range(3 * MOST_STARTING)]
    failure, progress = run(files, plans, AVAILABLE_NOW)
    assert failure is None
    assert most == MOST_STARTING
    assert set(states(progress)) == {"finished"}


def test_stopping_lets_the_batch_in_hand_end_first(files: RunFiles) -> None:
    query = DrivenQuery(*["busy"] * 10, "idle")
    failure, progress = run(files, [DrivenPlan("logs.a", query)], CONTINUOUS, stop_after_looks=2)
    assert failure is None
    assert query.stopped_when == "idle"
    assert states(progress) == ["stopped"]
    assert not files.stop_request.exists()


def test_the_sources_are_told_before_the_queries_are_stopped(files: RunFiles) -> None:
    told: list[bool] = []

    class Watching(DrivenQuery):
        def stop(self) -> None:
            told.append(files.stop_request.exists())
            super().stop()

    run(files, [DrivenPlan("logs.a", Watching("idle"))], CONTINUOUS, stop_after_looks=1)
    assert told == [True]


def test_a_query_that_never_gets_idle_is_stopped_when_time_is_up(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GRACE_S", 0.02)
    query = DrivenQuery("busy")
    run(files, [DrivenPlan("logs.a", query)], CONTINUOUS, stop_after_looks=2)
    assert query.stopped_when == "busy"


def test_a_restarted_query_counts_on(files: RunFiles) -> None:
    plan = DrivenPlan(
        "logs.a",
        DrivenQuery("busy", "busy", "away", reports=[report(0, 10), report(1, 10)]),
        DrivenQuery("busy", "idle", reports=[report(1, 7)]),
    )
    _, progress = run(files, [plan], CONTINUOUS, stop_after_looks=60)
    assert progress[0].rows == 27
    assert progress[0].problem is None

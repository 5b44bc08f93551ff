"""Runs checked pipelines: claims them, starts Spark, and runs them continuously, once or on a schedule. The caller
decides where progress is shown (a terminal, a log, a program): see `Watcher`. For other commands the state of the
run is written to its run file about once a second.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from headrace.client.errors import ClientError
from headrace.model.errors import KafkaError
from headrace.spark.client.cluster import BlockingCluster
from headrace.spark.option_table import OptionError
from headrace.spark.pipelines.checking.cluster import partitions_read
from headrace.spark.pipelines.checking.spark import check_spark
from headrace.spark.pipelines.compiling.checkpoint_folders import CheckpointPlace
from headrace.spark.pipelines.compiling.queries import build_queries
from headrace.spark.pipelines.connecting import cluster_settings
from headrace.spark.pipelines.cron import Cron
from headrace.spark.pipelines.definition import DEFAULT_BOOTSTRAP, Pipeline, PipelineError, SparkSettings
from headrace.spark.pipelines.explaining.spark_words import spark_sentence
from headrace.spark.pipelines.explaining.sql_errors import explain_failure
from headrace.spark.pipelines.running.checkpoint_lock import CheckpointLock
from headrace.spark.pipelines.running.class_archive import ClassArchive, class_archive
from headrace.spark.pipelines.running.connectors import connectors_beside
from headrace.spark.pipelines.running.metrics import MetricsServer
from headrace.spark.pipelines.running.ordering import stages
from headrace.spark.pipelines.running.progress import QueryProgress, carried_over, kept_rows, totals
from headrace.spark.pipelines.running.run_files import Claim, RunFiles, run_files, sharers
from headrace.spark.pipelines.running.runner import AVAILABLE_NOW, Failure, Job, Runner
from headrace.spark.pipelines.running.session import (
    DEFAULT_MASTER,
    NoJava,
    NoMaster,
    check_master,
    find_java,
    is_submitted,
    make_session,
    set_shuffle_partitions,
)
from headrace.spark.pipelines.running.watching import WatchedPlan

SAVE_EVERY_S = 1.0
MOST_LINES = 3
ASK_TIMEOUT_S = 5.0
_JAVA_ENDED = re.compile(r"^Exception in thread \"main\" (?:[\w$]+\.)*[\w$]+: (.+)$", re.MULTILINE)
CRON_LOOK_S = 30.0
_CHATTER = re.compile(r"spark-class: line|^WARNING: |default log4j profile|^Picked up |^\S+ \S+ (?:WARN|INFO) ")


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """The settings of the command line, which override the files."""

    bootstrap: str | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    schedule: float | Cron | None = None
    """Seconds from run to run, or the times at which runs begin."""
    checkpoint: str | None = None
    """A directory, or an address that Spark can write to."""
    metrics_port: int | None = None


class Watcher(Protocol):
    def look(self, queries: Sequence[QueryProgress], final: bool = False) -> None: ...
    def say(self, text: str) -> None: ...


class SparkFailed(Exception):
    """Spark did not start, or has died. `log` is the file with details."""

    def __init__(self, what: str, log: Path) -> None:
        super().__init__(what)
        self.log = log


CANNOT_BEGIN = (NoJava, NoMaster, SparkFailed, PipelineError)


@dataclass(slots=True)
class Launch:
    pipelines: Sequence[Pipeline]
    settings: LaunchSettings
    watcher: Watcher
    stop: threading.Event = field(default_factory=threading.Event)
    progress: dict[str, QueryProgress] = field(default_factory=dict)
    started: bool = False
    """Whether Spark has started; on a schedule the first query may come much later."""
    _before: dict[str, QueryProgress] = field(default_factory=dict)
    """The progress of the previous run: figures continue."""
    _files: dict[str, RunFiles] = field(default_factory=dict)
    _started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    _next_save_s: float = 0.0
    _archive: ClassArchive | None = None

    def run(self) -> Failure | None:
        """Raises `AlreadyRuns`, `CheckpointInUse`, `PortNotFree`, `ConnectorFailed`, or one of `CANNOT_BEGIN`."""
        with contextlib.ExitStack() as stack:
            for one in self.pipelines:
                self._files[one.name] = stack.enter_context(Claim(run_files(one.name)))
                stack.enter_context(CheckpointLock(self._checkpoint(one).directory))
                self._before |= carried_over(self._files[one.name].read(), self._checkpoint(one).directory)
            stack.enter_context(self._metrics())
            once = self.settings.once
            stack.enter_context(connectors_beside(self.pipelines, self._bootstrap, self.stop, once))
            self._save_all("starting")
            try:
                failure = self._with_spark()
            except CANNOT_BEGIN as problem:
                self._log_details(problem)
                self._save_all("failed", str(problem))
                raise
            for pipeline in self.pipelines:
                self._save(pipeline, *self._ending(pipeline, failure))
        return failure

    @property
    def log(self) -> Path:
        """The file with Spark's log, and its errors in full."""
        return run_files(self.pipelines[0].name).log

    def _log_details(self, problem: BaseException) -> None:
        """Log an error with all frames of Java and Python, which are shown nowhere else."""
        with self.log.open("a", encoding="utf-8", errors="replace") as log:
            log.writelines(traceback.format_exception(problem))

    def _explain(self, problem: BaseException, pipeline: Pipeline, query: str) -> Failure:
        self._log_details(problem)
        return explain_failure(problem, pipeline, query)

    def _with_spark(self) -> Failure | None:
        log = self.log
        session = self._session(log)
        try:
            jobs = {one.name: self._job(session, one) for one in self.pipelines}
            set_shuffle_partitions(session, max(map(self._partitions_read, self.pipelines)))
            self.started = True
            self.watcher.say("Spark has started; waiting for the first batch.")
            return None if self.stop.is_set() else self._run(jobs)
        except (Py4JNetworkError, ConnectionError):
            raise SparkFailed("Spark has died", log) from None
        finally:
            with contextlib.suppress(Py4JError, ConnectionError):
                session.stop()
            self._keep_archive()

    def _keep_archive(self) -> None:
        """Save the class archive of a machine's first run: Java writes the classes it has loaded when it ends."""
        if self._archive is not None and self._archive.fresh is not None:
            self.watcher.say("Saving Spark's classes, so that the next run starts sooner (once).")
            self._archive.keep()

    def _run(self, jobs: Mapping[str, Job]) -> Failure | None:
        if self.settings.once:
            return self._turn(jobs)
        if self.schedule_s:
            return self._scheduled(jobs)
        # Pipelines that feed others create the topics that these read.
        return self._run_jobs([jobs[pipeline.name] for stage in stages(self.pipelines) for pipeline in stage])

    @property
    def schedule_s(self) -> float | None:
        if self.settings.once:
            return None
        if self._crons:
            return CRON_LOOK_S
        given = self.settings.schedule
        return (
            given
            if isinstance(given, float)
            else min((p.schedule_s for p in self.pipelines if p.schedule_s), default=None)
        )

    @property
    def _crons(self) -> list[Cron]:
        given = self.settings.schedule
        if given is not None:
            return [given] if isinstance(given, Cron) else []
        return [p.cron for p in self.pipelines if p.cron is not None]

    def _await_cron(self) -> None:
        """Wait for the next run. The wall clock decides, and may be changed, so it is read repeatedly."""
        due = min(cron.after(datetime.now()) for cron in self._crons)
        self.watcher.say(f"The next run begins at {due:%Y-%m-%d %H:%M}.")
        while datetime.now() < due and not self.stop.is_set():
            self.stop.wait(max(0.0, min(CRON_LOOK_S, (due - datetime.now()).total_seconds())))

    def _scheduled(self, jobs: Mapping[str, Job]) -> Failure | None:
        """Start runs at fixed intervals; one that took longer is followed by the next at once."""
        assert self.schedule_s is not None
        due_s = time.monotonic()
        while not self.stop.is_set():
            if self._crons:
                self._await_cron()
                if self.stop.is_set():
                    break
            failure = self._turn(jobs)
            if failure is not None and not failure.passing:
                return failure
            if failure is not None:
                self.watcher.say(f"{failure.message} The next run will try again.")
            if self._crons:
                continue
            due_s = max(due_s + self.schedule_s, time.monotonic())
            if not self.stop.is_set():
                begins = datetime.now() + timedelta(seconds=due_s - time.monotonic())
                self.watcher.say(f"The next run begins at {begins:%H:%M:%S}.")
            self.stop.wait(due_s - time.monotonic())
        return None

    def _turn(self, jobs: Mapping[str, Job]) -> Failure | None:
        """Process existing records once; pipelines that feed others come first."""
        for stage in stages(self.pipelines):
            failure = self._run_jobs([jobs[pipeline.name] for pipeline in stage])
            if failure is not None or self.stop.is_set():
                return failure
        return None

    def _run_jobs(self, jobs: Sequence[Job]) -> Failure | None:
        def changed(queries: Sequence[QueryProgress]) -> None:
            self.watcher.look(queries)
            if time.monotonic() >= self._next_save_s:
                self._next_save_s = time.monotonic() + SAVE_EVERY_S
                self._save_all("stopping" if self.stop.is_set() else "running")

        failure = Runner(jobs, self._explain, changed, self.progress, self._before).run(self.stop)
        self.watcher.look(list(self.progress.values()), final=True)
        return failure

    def _session(self, log: Path) -> SparkSession:
        conf: dict[str, str] = {}
        for pipeline in self.pipelines:
            conf |= pipeline.spark.conf
        master = next((p.spark.master for p in self.pipelines if p.spark.master), None)
        names = ", ".join(pipeline.name for pipeline in self.pipelines)
        settings = SparkSettings(master, conf | dict(self.settings.conf))
        if not is_submitted():
            where = self.settings.master or master or DEFAULT_MASTER
            check_master(where)
            self.watcher.say(f"Starting Spark ({where}); its log is {log}")
        begin = log.stat().st_size if log.exists() else 0
        try:
            return self._made(settings, names, log)
        except PySparkRuntimeError:
            said = _words_of_java(log, begin)
            raise SparkFailed(f"Spark did not start: Java exited at once: {said}", log) from None
        except (Py4JNetworkError, ConnectionError):  # a signal to the whole group of processes reaches Java too
            how = "was stopped" if self.stop.is_set() else "ended"
            raise SparkFailed(f"Spark did not start: Java {how} before it was ready", log) from None
        except Py4JError as problem:
            raise SparkFailed(f"Spark did not start: {spark_sentence(str(problem)).rstrip('.')}", log) from problem

    def _made(self, settings: SparkSettings, names: str, log: Path) -> SparkSession:
        options = ""
        if not is_submitted():
            self._archive = class_archive(find_java(os.environ).home, os.environ, make=True)
            options = self._archive.options if self._archive is not None else ""
        return make_session(settings, names, master=self.settings.master, log_file=log, java_options=options)

    def _job(self, session: SparkSession, pipeline: Pipeline) -> Job:
        problems = [problem for problem in check_spark(pipeline, session) if not problem.warning]
        if problems:
            raise PipelineError(problems)
        place = self._checkpoint(pipeline)
        plans = build_queries(
            pipeline,
            session,
            bootstrap=self._bootstrap(pipeline),
            checkpoint=place
            if place.shared is None
            else replace(place, sharers=sharers(place.shared, pipeline.name)),
            stop_file=self._files[pipeline.name].stop_request,
        )
        watched = [WatchedPlan(plan) for plan in plans]
        return Job(pipeline, watched, self._files[pipeline.name], self._trigger(pipeline))

    def _partitions_read(self, pipeline: Pipeline) -> int:
        """The number of partitions that all streams read; 0 if the cluster fails, which a query will report."""
        try:
            settings = cluster_settings(pipeline, self._bootstrap(pipeline), request_timeout_s=ASK_TIMEOUT_S)
            with closing(BlockingCluster(settings)) as cluster:
                topics = cluster.topics()
        except (ClientError, KafkaError, OptionError):
            return 0
        return partitions_read(pipeline, topics)

    def _bootstrap(self, pipeline: Pipeline) -> str:
        return self.settings.bootstrap or pipeline.bootstrap or DEFAULT_BOOTSTRAP

    def _trigger(self, pipeline: Pipeline) -> Mapping[str, Any]:
        if self.settings.once or self.schedule_s:
            return AVAILABLE_NOW
        return {"processingTime": f"{round((pipeline.every_s or 0) * 1000)} milliseconds"}

    def _checkpoint(self, pipeline: Pipeline) -> CheckpointPlace:
        given = self.settings.checkpoint or pipeline.checkpoint
        if given is None:
            return CheckpointPlace(str(self._files[pipeline.name].checkpoint))
        shared = given.rstrip("/")
        return CheckpointPlace(f"{shared}/{pipeline.name}", shared)

    @contextlib.contextmanager
    def _metrics(self) -> Iterator[None]:
        if self.settings.metrics_port is None:
            yield
            return
        server = MetricsServer(self.settings.metrics_port, lambda: list(self.progress.values()))
        self.watcher.say(f"Metrics are at http://127.0.0.1:{server.port}/metrics")
        try:
            yield
        finally:
            server.close()

    def _ending(self, pipeline: Pipeline, failure: Failure | None) -> tuple[str, str | None]:
        """The final state, and the reason: a pipeline that fails ends the others in the run."""
        if failure is not None and failure.pipeline.name == pipeline.name:
            return "failed", failure.message
        return "stopped" if failure is not None or self.stop.is_set() else "finished", None

    def _save_all(self, state: str, problem: str | None = None) -> None:
        for pipeline in self.pipelines:
            self._save(pipeline, state, problem)

    def _save(self, pipeline: Pipeline, state: str, problem: str | None = None) -> None:
        mine = [one for one in self.progress.values() if one.pipeline == pipeline.name]
        mine = mine or [one for one in self._before.values() if one.pipeline == pipeline.name]
        self._files[pipeline.name].write(
            {
                "pid": os.getpid(),
                "state": state,
                "started": self._started,
                "file": str(Path(pipeline.path).resolve()),
                "checkpoint": self._checkpoint(pipeline).directory,
                "problem": problem or next((one.problem for one in mine if one.problem), None),
                "totals": totals(one.over_all_runs() for one in mine),
                "queries": kept_rows(mine),
            }
        )


def _words_of_java(log: Path, begin: int) -> str:
    """Java's last lines before it ended; Spark itself only reports that it ended."""
    text = log.read_bytes()[begin:].decode(errors="replace") if log.exists() else ""
    raised = _JAVA_ENDED.search(text)
    if raised is not None:
        return raised[1].strip().rstrip(".")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _CHATTER.search(line)]
    return " ".join(lines[:MOST_LINES]).rstrip(".") or "nothing"

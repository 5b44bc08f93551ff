"""Batch writes by name: all rows of a job become visible together, and a job that was done writes nothing again.

    rows.write.format("headrace").option("jobId", "totals/20261116").option("topic", ...).mode("append").save()

A job is one batch of a sink (`once/` has the protocol): its tasks prepare transactions, the driver decides, and
the next run with the same `jobId` after a crash first carries out what was decided; then its tasks find the job
done and write nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from headrace.spark.sink.columns import SinkColumns
from headrace.spark.sink.errors import SinkError, sink_errors
from headrace.spark.sink.job_names import Job
from headrace.spark.sink.once.decisions import Course, course_of
from headrace.spark.sink.once.driver import abort_batch, commit_batch, plan_batch
from headrace.spark.sink.once.plan import Plan, SinkSettings
from headrace.spark.sink.once.task import TaskIdentity, write_once
from headrace.spark.sink.options import SinkOptions
from headrace.spark.sink.task import TaskWriter, task_cluster
from headrace.spark.worker import settle_worker

log = logging.getLogger(__name__)


class JobWriter(DataSourceArrowWriter):
    """Created where Spark plans, pickled for the tasks and for the commit."""

    def __init__(self, options: SinkOptions, columns: SinkColumns, job: Job, sink: SinkSettings) -> None:
        self._options = options
        self._columns = columns
        self._job = job
        self._sink = sink
        self._plan: Plan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Spark pickles a writer only for a job that it runs: now is the time to plan it, once."""
        if self._plan is None:
            with sink_errors(self._options.client.bootstrap):
                self._plan = self._planned()
            settle_worker()
        return self.__dict__

    def _planned(self) -> Plan:
        patience_s = self._options.delivery_timeout_s
        plan = plan_batch(task_cluster(self._options), self._sink, patience_s, needs_prepare=False)
        assert plan is not None
        course = course_of(plan.decided, self._job.batch)
        if course is Course.SKIP:
            log.info("The job %s was written before: nothing is written", self._job.text)
        if course is Course.TOO_OLD:
            assert plan.decided is not None
            raise SinkError(
                f"the job {self._job.text} comes too late: number {plan.decided.batch_id} of the same series was "
                "written already. Give it a jobId of its own if its rows are to be written"
            )
        return plan

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        plan, context = self._plan, TaskContext.get()
        assert plan is not None
        assert context is not None
        task = TaskIdentity(self._job.batch, context.partitionId(), context.attemptNumber())
        with sink_errors(self._options.client.bootstrap):
            writer = TaskWriter(self._options, self._columns, task_cluster(self._options))
            try:
                return write_once(writer, iterator, plan, task, self._options.delivery_timeout_s)
            finally:
                writer.close()
                settle_worker()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with sink_errors(self._options.client.bootstrap):
            cluster = task_cluster(self._options)
            commit_batch(cluster, messages, self._job.number, self._options.delivery_timeout_s)
        settle_worker()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with sink_errors(self._options.client.bootstrap):
            cluster = task_cluster(self._options)
            abort_batch(cluster, messages, self._job.number, self._options.delivery_timeout_s)
        settle_worker()

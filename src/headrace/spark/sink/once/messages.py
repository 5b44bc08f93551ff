"""The messages from the tasks to their driver. In a module of its own, because only this needs Spark."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from headrace.spark.sink.once.decisions import Entry
from headrace.spark.sink.once.plan import Plan


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task reports to the driver. No entry: it had no rows, or the batch was decided before."""

    plan: Plan
    query_id: str
    entry: Entry | None
    rows: int

"""A task's part: its rows in a transaction of its own, left open and prepared for the driver to decide on.

A task never ends a transaction of another task: it may be late itself, and what it finds may be decided. If its
name is in use it fails, and Spark's next attempt has another name. When it has prepared its transaction it reads
the log once more: if it was fenced, or its batch decided without it, it aborts its own transaction. A driver that
decides after that finds it prepared, and sweeps it if it is not part of the decision.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from headrace.client.errors import ClientError
from headrace.model.errors import KafkaError
from headrace.spark.client.cluster import BlockingCluster
from headrace.spark.client.transactions import LOST, NOBODY, Identity, InTransaction, TransactionClient
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.once.decisions import Batch, Course, Entry, SinkLog, is_superseded
from headrace.spark.sink.once.driver import check_course
from headrace.spark.sink.once.journal import Journal
from headrace.spark.sink.once.messages import TaskDone
from headrace.spark.sink.once.names import task_id
from headrace.spark.sink.once.plan import Plan
from headrace.spark.sink.task import TaskWriter


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """What Spark says of a task."""

    batch: Batch
    partition: int
    attempt: int


def write_once(
    writer: TaskWriter, batches: Iterable[pa.RecordBatch], plan: Plan, task: TaskIdentity, patience_s: float
) -> TaskDone:
    """Write all rows and prepare them, unless the batch was decided before."""
    nothing = TaskDone(plan, task.batch.query_id, None, 0)
    if check_course(plan, task.batch) is Course.SKIP:
        for _ in batches:
            pass  # a window or a join above must see its rows: Spark keeps no state of what was not computed
        return nothing
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return nothing
    name = task_id(plan.sink.sink_id, task.partition, task.attempt)
    client = TransactionClient(writer.cluster, patience_s)
    owner = _begin(client, name, plan)
    began_s = time.monotonic()
    try:
        writer.begin(InTransaction(name, owner))
        writer.write(first)
        for batch in filled:
            writer.write(batch)
        written = writer.finish()
        entry = Entry(name, owner, owner)
        if plan.two_phase:
            owner = client.prepare(name, owner).identity
            entry = Entry(name, owner, entry.records)
        _check_wanted(writer.cluster, plan, patience_s)
    except BaseException as error:
        with suppress(KafkaError, ClientError):
            client.end(name, owner, commit=False)
        if isinstance(error, KafkaError) and error.code in LOST:
            _check_time(plan, time.monotonic() - began_s)
        raise
    return TaskDone(plan, task.batch.query_id, entry, written.rows)


def _begin(client: TransactionClient, name: str, plan: Plan) -> Identity:
    if not plan.two_phase:
        return client.begin(name, plan.sink.timeout_ms).identity
    begun = client.take_over(name, plan.sink.timeout_ms)
    if begun.ongoing != NOBODY:
        raise SinkError(
            f"another attempt of this task has a transaction open as {name}: the next attempt has another name, "
            "and the driver ends what is left"
        )
    return begun.identity


def _check_time(plan: Plan, took_s: float) -> None:
    timeout_s = plan.sink.timeout_ms / 1000
    if took_s >= timeout_s:
        raise SinkError(
            f"the rows of a task were not written within {timeout_s:g} s, so the cluster aborted its transaction: "
            "make batches smaller (maxOffsetsPerTrigger), or set kafka.transaction.timeout.ms higher"
        )


def _check_wanted(cluster: BlockingCluster, plan: Plan, patience_s: float) -> None:
    journal = Journal.open(cluster, plan.sink.sink_id, patience_s)
    end = journal.end()
    if end > plan.read_up_to:
        log = SinkLog(plan.token, plan.fence_offset).read(journal.read(plan.read_up_to, end))
        if is_superseded(log, plan.fence_offset):
            raise SinkError(
                f"this attempt came too late: another driver has the sink {plan.sink.sink_id}, or the batch is "
                "decided"
            )

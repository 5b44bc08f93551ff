"""A sink that is the real one, but for a moment at which its process, and with it the driver, dies or waits.

    task      some rows of a task are written                      (one task of the batch)
    before    all tasks have prepared, nothing is decided          (commit)
    decided   the decision is in the log                           (commit)
    first     one transaction is committed, the others are not     (commit)
    ends      all are committed, and the log does not say so yet   (commit)
    done      all is done, Spark does not know it                  (commit)

What happens then is `kill` (the driver), `executor` (kill that instead), `hold` (until a file is there) or `raise`
(a commit, or a task's first attempt, fails). Without a stage there is `wait`: in every batch the first attempt of
one task waits until a later one has overtaken it.
Doom comes as an option, since it has to reach processes that Spark starts.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.spark.client.producing import BatchProducer
from headrace.spark.client.transactions import Identity, TransactionClient
from headrace.spark.compat import streaming_batch
from headrace.spark.datasource import HeadraceDataSource
from headrace.spark.sink.columns import SinkColumns, sink_columns
from headrace.spark.sink.once import driver
from headrace.spark.sink.once.decisions import Decision, Done, LogRecord, SinkLog
from headrace.spark.sink.once.journal import Journal
from headrace.spark.sink.once.plan import Plan
from headrace.spark.sink.options import SinkOptions, parse_sink_options
from headrace.spark.sink.writer import StreamWriter

STAGES = ("task", "before", "decided", "first", "ends", "done")
POLL_S = 0.05
HOLD_S = 1500.0
WAITING, OVERTAKEN = "waiting-", "overtaken-"
"""Prefixes of file names, followed by the number of a batch."""
ROWS_BEFORE = 1
"""How many Arrow batches a doomed task takes before it dies."""

Doom = dict[str, Any]
"""stage, act, batch, group (of processes to kill), folder (for files), mutant."""


class InjectedFailure(Exception):
    """The error that was requested."""


def reach(doom: Doom) -> None:
    """Act at the stage: die, raise, or wait."""
    folder = Path(doom["folder"])
    (folder / f"reached-{doom['stage']}").touch()
    if doom["act"] == "kill":
        os.killpg(int(doom["group"]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    if doom["act"] == "executor":
        os.kill(_parent(os.getppid()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    if doom["act"] == "raise":
        raise InjectedFailure(doom["stage"])
    _wait_for(folder / "go")


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + HOLD_S
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _task() -> tuple[TaskContext, int]:
    """The task that runs here, and the number of its batch."""
    context, batch = TaskContext.get(), streaming_batch()
    assert context is not None
    assert batch is not None
    return context, batch[1]


def _parent(pid: int) -> int:
    """The parent of the daemon that forks Python workers: Java."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class DyingWriter(StreamWriter):
    def __init__(self, options: SinkOptions, columns: SinkColumns, doom: Doom) -> None:
        super().__init__(options, columns)
        self._doom = doom

    def __getstate__(self) -> dict[str, Any]:
        with planted(self._doom):
            return super().__getstate__()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with planted(self._doom):
            done = super().write(self._until_doom(iterator))
        if self._doom.get("act") == "wait":
            self._overtake()
        return done

    def _overtake(self) -> None:
        """Note that a later attempt has prepared its rows while the first still waits."""
        context, batch = _task()
        if context.attemptNumber() > 0 and self._file(WAITING, batch).exists():
            self._file(OVERTAKEN, batch).touch()

    def _wait_to_be_overtaken(self, batch: int) -> None:
        self._file(WAITING, batch).touch()
        _wait_for(self._file(OVERTAKEN, batch))

    def _file(self, kind: str, batch: int) -> Path:
        return Path(self._doom["folder"]) / f"{kind}{batch}"

    def _until_doom(self, batches: Iterator[Any]) -> Iterator[Any]:
        context, batch = _task()
        doomed = self._doom.get("stage") == "task" and self._doom["batch"] == batch
        if self._doom.get("act") in ("raise", "executor"):
            doomed = doomed and context.attemptNumber() == 0
        waits = self._doom.get("act") == "wait" and (context.partitionId(), context.attemptNumber()) == (0, 0)
        for number, rows in enumerate(batches):
            if doomed and number == ROWS_BEFORE:
                reach(self._doom)
            if waits and number == ROWS_BEFORE:
                self._wait_to_be_overtaken(batch)
            yield rows

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        doomed = self._doom.get("batch") == batchId
        with planted(self._doom), dooming(self._doom) if doomed else nullcontext():
            super().commit(messages, batchId)
            if doomed and self._doom["stage"] == "done":
                reach(self._doom)


@contextmanager
def dooming(doom: Doom) -> Iterator[None]:
    """Die at a stage of a commit."""
    append, end = Journal.append, TransactionClient.end
    stage = doom["stage"]
    ended: list[str] = []

    def dying_append(self: Journal, token: Identity, sequence: int, record: LogRecord) -> int:
        if (isinstance(record, Decision) and stage == "before") or (isinstance(record, Done) and stage == "ends"):
            reach(doom)
        offset = append(self, token, sequence, record)
        if isinstance(record, Decision) and stage == "decided":
            reach(doom)
        return offset

    def dying_end(self: TransactionClient, transactional_id: str, identity: Identity, *, commit: bool) -> None:
        end(self, transactional_id, identity, commit=commit)
        ended.append(transactional_id)
        if commit and stage == "first" and len(ended) == 1:
            reach(doom)

    with (
        mock.patch.object(Journal, "append", dying_append),
        mock.patch.object(TransactionClient, "end", dying_end),
        mock.patch.object(driver, "AT_ONCE", 1),
    ):
        yield


# --- defects, which must be found


@contextmanager
def planted(doom: Doom) -> Iterator[None]:
    act = MUTANTS.get(doom.get("mutant") or "")
    if act is None:
        yield
        return
    with act():
        yield


@contextmanager
def no_decision() -> Iterator[None]:
    """Transactions are committed without a decision."""
    append = Journal.append

    def silent(self: Journal, token: Identity, sequence: int, record: LogRecord) -> int:
        return 0 if isinstance(record, Decision | Done) else append(self, token, sequence, record)

    with mock.patch.object(Journal, "append", silent), mock.patch.object(driver, "_decide", _believed):
        yield


@contextmanager
def no_fence() -> Iterator[None]:
    """A decision counts whoever else has the sink: neither the broker nor the log refuses it."""
    append, after = Journal.append, SinkLog.after

    def unfenced(self: Journal, token: Identity, sequence: int, record: LogRecord) -> int:
        if isinstance(record, Decision):
            nobody = self._cluster.producer_id()
            token, sequence = Identity(nobody.id, nobody.epoch), 0
        return append(self, token, sequence - isinstance(record, Done), record)

    def believing(self: SinkLog, offset: int, record: LogRecord) -> SinkLog:
        if isinstance(record, Decision):
            return replace(self, decision=record, done=False, slot_taken=True)
        return after(self, offset, record)

    with (
        mock.patch.object(Journal, "append", unfenced),
        mock.patch.object(SinkLog, "after", believing),
        mock.patch.object(driver, "_decide", _believed),
        mock.patch.object(driver, "_check_newest"),
    ):
        yield


def _believed(journal: Journal, plan: Plan, decision: Decision) -> SinkLog:
    journal.append(plan.token, plan.next_sequence, decision)
    return SinkLog(plan.token, plan.fence_offset, decision=decision, done=False)


@contextmanager
def no_flush() -> Iterator[None]:
    """Tasks prepare before their records are acknowledged."""
    with mock.patch.object(BatchProducer, "flush"):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "no-decision": no_decision,
    "no-fence": no_fence,
    "no-flush": no_flush,
}


class DyingSink(HeadraceDataSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        given = dict(self.options)
        doom: Doom = json.loads(given.pop("doom"))
        options = parse_sink_options(given)
        return DyingWriter(options, sink_columns(schema, options), doom)

"""The driver's part: planning and deciding every batch, and ending all transactions that no decision names.

Three calls, each in a process of its own that may die at any point: `plan_batch`, then `commit_batch` or
`abort_batch`. They rely only on the sink's log (`decisions`) and on the reports of the tasks.

Nothing is ended that might belong to another driver. A transaction without a decision is first taken over, which
leaves it open, then the log is read: only if no newer fence is in it, the transaction is aborted, by the identity
that took it over. A newer driver that uses the same name meanwhile has fenced that identity.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.client.errors import ClientError
from headrace.model.errors import KafkaError
from headrace.spark.client.cluster import BlockingCluster
from headrace.spark.client.transactions import (
    COMMITTED,
    LOST,
    Identity,
    NoTwoPhaseCommit,
    TransactionClient,
)
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.once.decisions import (
    CLOSING_EPOCH,
    Abandoned,
    Batch,
    Closed,
    Course,
    Decision,
    Done,
    Entry,
    Fence,
    SinkLog,
    course_of,
    orphans,
)
from headrace.spark.sink.once.journal import Journal, Superseded
from headrace.spark.sink.once.names import driver_id, local_path, tasks_of
from headrace.spark.sink.once.plan import Plan, SinkSettings

if TYPE_CHECKING:
    from headrace.spark.sink.once.messages import TaskDone

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Transactions that are ended at the same time."""
FIRST = 0
ANOTHER_DRIVER = "another driver has taken over the sink"
"""The error for a driver that was fenced."""

T = TypeVar("T")


@dataclass(slots=True)
class _Known:
    """The part of a sink's log that this process has read."""

    log: SinkLog
    next_offset: int


_known: dict[tuple[str, str], _Known] = {}
"""The logs by cluster and sink. Spark keeps the process that plans: a log is read once, then followed."""


# --- planning


def plan_batch(
    cluster: BlockingCluster, sink: SinkSettings, patience_s: float, *, needs_prepare: bool
) -> Plan | None:
    """Fence, read the log, and finish what an earlier driver has left.

    With `needs_prepare` it returns None, and does nothing, if the cluster has no explicit prepare.
    """
    client = TransactionClient(cluster, patience_s)
    token, two_phase = _acquire(client, sink, needs_prepare)
    if token is None:
        return None
    journal = Journal.open(cluster, sink.sink_id, patience_s)
    key = (cluster.settings.bootstrap, sink.sink_id)
    known = _known.pop(key, None)
    first_time = known is None
    with _told(sink.sink_id):
        known = _close_old_id(journal, known or _Known(SinkLog(), journal.start()), token)
        fence_offset = journal.append(token, FIRST, Fence(token))
        if fence_offset < known.next_offset:
            known = _Known(SinkLog(), journal.start())  # the topic has been created again
        known = _followed(journal, known, fence_offset + 1)
        if known.log.fence_offset != fence_offset:
            raise Superseded(f"the fence at offset {fence_offset} is not the last one")
        written = _make_up(client, journal, known.log, token, sink)
        end = fence_offset + 1
        if written:
            end = journal.end()
            known = _followed(journal, known, end)
            if known.log.fence_offset != fence_offset:
                raise Superseded("a newer fence is in the log")
    plan = Plan(
        sink,
        token,
        fence_offset,
        end,
        FIRST + 1 + written,
        known.log.decision.batch if known.log.decision is not None else None,
        two_phase,
    )
    if first_time:
        with _told(sink.sink_id):
            _sweep(client, journal, plan, known.log)
    _known[key] = known
    return plan


def _acquire(client: TransactionClient, sink: SinkSettings, needs_prepare: bool) -> tuple[Identity | None, bool]:
    """The token, and whether the cluster has explicit prepare."""
    name = driver_id(sink.sink_id)
    try:
        return client.take_over(name, sink.timeout_ms).identity, True
    except NoTwoPhaseCommit:
        return (None if needs_prepare else client.begin(name, sink.timeout_ms).identity), False


@contextmanager
def _told(sink_id: str) -> Iterator[None]:
    """Report another driver to the user as a SinkError."""
    try:
        yield
    except Superseded as error:
        raise SinkError(
            f"{ANOTHER_DRIVER} {sink_id}: a checkpoint, or a sinkId, belongs to one running query ({error})"
        ) from None


def _followed(journal: Journal, known: _Known, end: int) -> _Known:
    return _Known(known.log.read(journal.read(known.next_offset, end)), max(end, known.next_offset))


def _close_old_id(journal: Journal, known: _Known, token: Identity) -> _Known:
    """Close the old producer id if the last fence has another one: its epochs were used up, or it was forgotten.
    None of its epochs counts any more."""
    if known.log.fence is None or known.log.fence.producer_id != token.producer_id:
        known = _followed(journal, known, journal.end())
    last = known.log.fence
    if last is not None and last.producer_id != token.producer_id:
        journal.append(Identity(last.producer_id, CLOSING_EPOCH), FIRST, Closed(last.producer_id))
    return known


def _make_up(
    client: TransactionClient, journal: Journal, known: SinkLog, token: Identity, sink: SinkSettings
) -> int:
    """Roll forward a decision that was not carried out, and keep a valid one from being hidden by a void one.
    Returns how much was written.
    """
    written = 0
    decision = known.decision
    if decision is None:
        return written
    if known.void_last:
        again = Decision(known.fence_offset, decision.batch, decision.entries, decision.rows, again=True)
        written += 1
        journal.append(token, FIRST + written, again)
    if not known.done:
        log.info("Sink %s: committing batch %d, which was decided before", sink.sink_id, decision.batch.batch_id)
        _roll_forward(client, journal, decision, known.fence_offset)
        written += 1
        journal.append(token, FIRST + written, Done(decision.batch))
    return written


def forget_sink(cluster: BlockingCluster, sink_id: str) -> None:
    """Forget the sink: the next plan in this process reads the whole log again, and sweeps."""
    _known.pop((cluster.settings.bootstrap, sink_id), None)


def give_up_sink(cluster: BlockingCluster, sink: SinkSettings, patience_s: float) -> None:
    """Abort all open transactions, decided or not, and mark the last decision as done. For an operator."""
    client = TransactionClient(cluster, patience_s)
    journal = Journal.open(cluster, sink.sink_id, patience_s)
    with _told(sink.sink_id):
        token, two_phase = _acquire(client, sink, needs_prepare=False)
        assert token is not None
        known = _close_old_id(journal, _Known(SinkLog(), journal.start()), token)
        fence_offset = journal.append(token, FIRST, Fence(token))
        known = _followed(journal, known, fence_offset + 1)
        plan = Plan(sink, token, fence_offset, fence_offset + 1, FIRST + 1, None, two_phase)
        _sweep(client, journal, plan, SinkLog())
        if known.log.decision is not None and not known.log.done:
            journal.append(token, FIRST + 1, Done(known.log.decision.batch))


# --- commit and abort


def commit_batch(cluster: BlockingCluster, messages: Iterable[object], batch_id: int, patience_s: float) -> None:
    """Decide and carry out a batch. One that was decided before is done; one without rows needs nothing."""
    done = _tasks(messages)
    if not done:
        return
    plan, query_id = done[0].plan, done[0].query_id
    assert all(one.plan.fence_offset == plan.fence_offset for one in done), "tasks of one plan"
    batch = Batch(query_id, batch_id, offsets_hash(plan.sink.checkpoint, batch_id))
    if check_course(plan, batch) is Course.SKIP:
        return
    entries = tuple(one.entry for one in done if one.entry is not None)
    if not entries:
        return
    decision = Decision(plan.fence_offset, batch, entries, sum(one.rows for one in done))
    journal = Journal.open(cluster, plan.sink.sink_id, patience_s)
    client = TransactionClient(cluster, patience_s)
    with _told(plan.sink.sink_id):
        decided = _decide(journal, plan, decision)
        _roll_forward(client, journal, decision, plan.fence_offset)
        journal.append(plan.token, plan.next_sequence + 1, Done(batch))
        try:
            _sweep(client, journal, plan, decided)
        except (KafkaError, ClientError) as error:
            log.warning(
                "Sink %s: open transactions of lost attempts will be aborted later: %s", plan.sink.sink_id, error
            )


def _decide(journal: Journal, plan: Plan, decision: Decision) -> SinkLog:
    """Write the decision: refused if there is a newer driver, and verified in the log."""
    offset = journal.append(plan.token, plan.next_sequence, decision)
    found = _since(journal, plan, offset)
    if found.decision != decision:
        raise Superseded(f"the decision at offset {offset} does not count: it was fenced or abandoned before")
    return found


def abort_batch(cluster: BlockingCluster, messages: Iterable[object], batch_id: int, patience_s: float) -> None:
    """Abort the batch, unless it is decided: then the next driver carries it out."""
    done = _tasks(messages)
    if not done or all(one.entry is None for one in done):
        return
    plan = done[0].plan
    journal = Journal.open(cluster, plan.sink.sink_id, patience_s)
    client = TransactionClient(cluster, patience_s)
    try:
        offset = journal.append(plan.token, plan.next_sequence, Abandoned(plan.fence_offset, batch_id))
    except Superseded:
        return  # a newer driver sweeps
    if _since(journal, plan, offset).decision is not None:
        return
    _at_once(partial(_abort, client), [one.entry for one in done if one.entry is not None])
    with _told(plan.sink.sink_id):
        _sweep(client, journal, plan, SinkLog(plan.token, plan.fence_offset))


def _since(journal: Journal, plan: Plan, offset: int) -> SinkLog:
    """The log since the plan, up to a record that was written (to its end where that is unknown)."""
    end = offset + 1 if offset >= 0 else journal.end()
    return SinkLog(plan.token, plan.fence_offset).read(journal.read(plan.read_up_to, end))


def _tasks(messages: Iterable[object]) -> list[TaskDone]:
    from headrace.spark.sink.once.messages import TaskDone  # it imports Spark, which a command does not need

    return [one for one in messages if isinstance(one, TaskDone)]


def check_course(plan: Plan, batch: Batch) -> Course:
    """The course for a batch; SinkError if the query's checkpoint is older than the sink."""
    course = course_of(plan.decided, batch)
    if course in (Course.TOO_OLD, Course.ANOTHER):
        assert plan.decided is not None
        what = (
            f"the sink {plan.sink.sink_id} has committed batch {plan.decided.batch_id} of this query, and its "
            f"checkpoint is at batch {batch.batch_id}"
        )
        if course is Course.ANOTHER:
            what = (
                f"the sink {plan.sink.sink_id} has committed batch {batch.batch_id} of this query with other "
                "offsets than its checkpoint has"
            )
        raise SinkError(
            f"the checkpoint is older than the sink: {what}. Restore the newest checkpoint; or, to write rows "
            "again that are in the topic, start the query with another sinkId"
        )
    return course


def offsets_hash(checkpoint: str | None, batch_id: int) -> str | None:
    """A hash of the offsets that a batch covers, from its checkpoint; None if they cannot be read from here."""
    folder = local_path(checkpoint) if checkpoint else None
    if folder is None:
        return None
    try:
        return hashlib.sha256((Path(folder) / "offsets" / str(batch_id)).read_bytes()).hexdigest()[:16]
    except OSError:
        return None


# --- ends


def _roll_forward(client: TransactionClient, journal: Journal, decision: Decision, fence_offset: int) -> None:
    """Commit everything that can be committed, even if others fail."""
    failures: list[Exception] = []

    def commit(entry: Entry) -> None:
        try:
            _commit(client, journal, fence_offset, entry)
        except (SinkError, KafkaError, ClientError) as error:
            failures.append(error)

    _at_once(commit, decision.entries)
    if failures:
        passing = [one for one in failures if not isinstance(one, SinkError)]
        raise (passing or failures)[0]


def _commit(client: TransactionClient, journal: Journal, fence_offset: int, entry: Entry) -> None:
    """Commit an entry of a decision. If that is impossible it is an error, never skipped."""
    try:
        client.end(entry.transactional_id, entry.identity, commit=True)
        return
    except KafkaError as error:
        if error.code not in LOST:
            raise
        refusal = error
    # A task that came late may have taken it over, and left it open: only a newer driver may not be disturbed.
    _check_newest(journal, fence_offset)
    state = client.describe(entry.transactional_id)
    if state is None:
        raise SinkError(_gone(journal, entry, f"{refusal}; {_FORGOTTEN}"))
    if state.transaction_state in COMMITTED and (state.producer_id, state.producer_epoch) == _next(entry.identity):
        return  # by an operator, who took it over: a task that did would have one more epoch since it prepared
    try:
        taken = client.take_over(entry.transactional_id, _TAKEN_TIMEOUT_MS)
    except NoTwoPhaseCommit:
        taken = None
    if taken is None or taken.ongoing != entry.records:
        raise SinkError(_gone(journal, entry, f"{refusal}; it was aborted by name, or it timed out"))
    client.end(entry.transactional_id, taken.identity, commit=True)


def _gone(journal: Journal, entry: Entry, why: str) -> str:
    return (
        f"the transaction of {entry.transactional_id} belongs to a batch that is decided, and cannot be committed "
        f"any more ({why}). Find out whether its rows are in the topics, then let the batch count as written with "
        f"`headrace sink abort {journal.sink_id} --lose-decided`"
    )


_FORGOTTEN = (
    "the cluster has forgotten it: it ended more than transactional.id.expiration.ms ago, committed by the driver "
    "itself unless somebody aborted it by name or it timed out"
)


def _next(identity: Identity) -> Identity:
    """The identity that takes over from this one."""
    return identity._replace(epoch=identity.epoch + 1)


_TAKEN_TIMEOUT_MS = 60_000
"""The transaction timeout for the new identity, which begins no transaction."""


def _abort(client: TransactionClient, entry: Entry) -> None:
    try:
        client.end(entry.transactional_id, entry.identity, commit=False)
    except KafkaError as error:
        if error.code not in LOST:
            raise


def _sweep(client: TransactionClient, journal: Journal, plan: Plan, known: SinkLog) -> None:
    """Abort what losing and dead attempts have left open."""
    sink_id = plan.sink.sink_id
    found = tasks_of(sink_id, client.open_ids(driver_id(sink_id) + "."))
    left = orphans(found, known)
    if left:
        log.info("Sink %s: aborting %s, which no decision names", sink_id, ", ".join(left))
    _at_once(partial(_abort_orphan, client, journal, plan), left)


def _abort_orphan(client: TransactionClient, journal: Journal, plan: Plan, transactional_id: str) -> None:
    if not plan.two_phase:
        _check_newest(journal, plan.fence_offset)
        client.begin(transactional_id, plan.sink.timeout_ms)
        return
    taken = client.take_over(transactional_id, plan.sink.timeout_ms)
    _check_newest(journal, plan.fence_offset)
    try:
        client.end(transactional_id, taken.identity, commit=False)
    except KafkaError as error:
        if error.code not in LOST:  # it has already ended, or a newer driver uses the name
            raise


def _check_newest(journal: Journal, fence_offset: int) -> None:
    """Raise Superseded if the log has a newer fence than ours."""
    records = journal.read(fence_offset, journal.end())
    if SinkLog().read(records).fence_offset > fence_offset:
        raise Superseded("a newer fence is in the log")


def _at_once(act: Callable[[T], None], each: Sequence[T]) -> None:
    if len(each) <= 1:
        for one in each:
            act(one)
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(each))) as pool:
        for _ in pool.map(act, each):
            pass

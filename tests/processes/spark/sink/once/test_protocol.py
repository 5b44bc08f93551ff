"""The exactly-once sink with a real broker and without Spark: drivers and tasks that stop at every point.

A driver that dies is one that does nothing more; the next one has read nothing yet. The same with real processes
and Spark is in tests/spark/test_exactly_once_sink.py.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from examples.demo.results import read_topic
from headrace.model.errors import ErrorCode, KafkaError
from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.client.creating import TopicShape, ensure_topic
from headrace.spark.client.transactions import Identity, TransactionClient
from headrace.spark.sink.columns import sink_columns
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.once import driver
from headrace.spark.sink.once.decisions import Batch, Decision, Done, SinkLog
from headrace.spark.sink.once.driver import abort_batch, commit_batch, plan_batch
from headrace.spark.sink.once.journal import Journal
from headrace.spark.sink.once.messages import TaskDone
from headrace.spark.sink.once.names import driver_id, task_id
from headrace.spark.sink.once.plan import Plan, SinkSettings
from headrace.spark.sink.once.task import TaskIdentity, write_once
from headrace.spark.sink.options import parse_sink_options
from headrace.spark.sink.task import TaskWriter
from tests.spark.topics import Topics
from tests.unit.spark.sink.schemas import schema

PATIENCE_S = 60.0
pytestmark = pytest.mark.headrace_only


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Scene:
    topics: Topics
    topic: str
    cluster: BlockingCluster
    sink: SinkSettings
    sent: list[bytes] = field(default_factory=list)

    def plan(self) -> Plan:
        made = plan_batch(self.cluster, self.sink, PATIENCE_S, needs_prepare=True)
        assert made is not None
        return made

    def restart(self) -> Plan:
        """A new driver process plans its first batch."""
        driver._known.clear()
        return self.plan()

    def write(self, plan: Plan, batch_id: int, partition: int = 0, attempt: int = 0, query: str = "q") -> TaskDone:
        given = {"kafka.bootstrap.servers": self.topics.bootstrap, "topic": self.topic}
        options = parse_sink_options(given)
        columns = sink_columns(schema("value string"), options)
        writer = TaskWriter(options, columns, self.cluster)
        rows = pa.RecordBatch.from_pydict({"value": self.rows(batch_id, partition)})
        try:
            task = TaskIdentity(Batch(query, batch_id), partition, attempt)
            left = iter([rows])
            done = write_once(writer, left, plan, task, PATIENCE_S)
            assert next(left, None) is None, "rows of a decided batch are computed too: Spark's state needs them"
        finally:
            writer.close()
        assert pickle.loads(pickle.dumps(done)) == done, "it travels to the driver"
        return done

    def rows(self, batch_id: int, partition: int) -> list[str]:
        return [f"{batch_id}/{partition}/{number}" for number in range(5)]

    def tasks(self, plan: Plan, batch_id: int, partitions: int = 2) -> list[TaskDone]:
        return [self.write(plan, batch_id, partition) for partition in range(partitions)]

    def commit(self, messages: list[TaskDone], batch_id: int) -> None:
        commit_batch(self.cluster, messages, batch_id, PATIENCE_S)

    def abort(self, messages: list[TaskDone], batch_id: int) -> None:
        abort_batch(self.cluster, messages, batch_id, PATIENCE_S)

    def whole_batch(self, batch_id: int) -> None:
        plan = self.plan()
        self.commit(self.tasks(plan, batch_id), batch_id)

    @property
    def client(self) -> TransactionClient:
        return TransactionClient(self.cluster)

    def open_ids(self) -> list[str]:
        return self.client.open_ids(driver_id(self.sink.sink_id))

    def log(self) -> SinkLog:
        journal = Journal.open(self.cluster, self.sink.sink_id, PATIENCE_S)
        return SinkLog().read(journal.read(journal.start(), journal.end()))

    def check(self, batches: int, partitions: int = 2) -> None:
        """Every row is there once, and nothing is open."""
        assert self.open_ids() == []
        wanted = [row for one in range(batches) for p in range(partitions) for row in self.rows(one, p)]
        found = Counter((record.value or b"").decode() for record in self.topics.read(self.topic, range(2)))
        assert found == Counter(wanted)


@pytest.fixture
def scene(bootstrap: str) -> Iterator[Scene]:
    topics = Topics(bootstrap)
    topic = topics.create(partitions=2)
    cluster = BlockingCluster(ClusterSettings(bootstrap))
    driver._known.clear()
    yield Scene(topics, topic, cluster, SinkSettings(topic, 60_000, None))
    cluster.close()
    topics.delete([topic])


def dying(scene: Scene, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: int) -> None:
    """The process ends when a method is called once more than so often."""
    real = getattr(owner, name)
    calls: list[object] = []

    def call(self, *args, **options):  # type: ignore[no-untyped-def]
        calls.append(args)
        if len(calls) > after:
            raise Killed
        return real(self, *args, **options)

    monkeypatch.setattr(owner, name, call)


def test_batches_one_after_the_other(scene: Scene) -> None:
    for batch_id in range(3):
        scene.whole_batch(batch_id)
    scene.check(3)
    log = scene.log()
    assert log.done
    assert log.decision is not None
    assert (log.decision.batch.batch_id, log.decision.rows) == (2, 10)


def test_rows_without_a_decision_are_not_seen(scene: Scene) -> None:
    scene.whole_batch(0)
    scene.tasks(scene.plan(), 1)
    assert scene.open_ids() == [task_id(scene.topic, partition, 0) for partition in range(2)]
    plan = scene.restart()
    assert scene.open_ids() == [], "the next driver sweeps"
    scene.commit(scene.tasks(plan, 1), 1)
    scene.check(2)


@pytest.mark.parametrize("ends", [0, 1, 2])
def test_a_decision_is_carried_out_by_the_next_driver(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, ends: int
) -> None:
    """Its driver dies after so many EndTxn. The batch comes again, and its tasks write nothing."""
    messages = scene.tasks(scene.plan(), 0)
    with monkeypatch.context() as patch:
        patch.setattr(driver, "AT_ONCE", 1)
        dying(scene, patch, TransactionClient, "end", ends)
        if ends == 2:
            dying(scene, patch, Journal, "append", 1)
        with pytest.raises(Killed):
            scene.commit(messages, 0)
    plan = scene.restart()
    again = scene.tasks(plan, 0)
    assert all(one.entry is None for one in again)
    scene.commit(again, 0)
    scene.check(1)
    scene.whole_batch(1)
    scene.check(2)


def test_a_decision_is_carried_out_before_another_query_uses_its_names(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint was deleted: the query has another id, and begins with batch 0."""
    messages = scene.tasks(scene.plan(), 0)
    with monkeypatch.context() as patch:
        dying(scene, patch, TransactionClient, "end", 0)
        with pytest.raises(Killed):
            scene.commit(messages, 0)
    plan = scene.restart()
    scene.commit([scene.write(plan, 1, partition, query="new") for partition in range(2)], 0)
    scene.check(2)


def test_a_driver_that_was_fenced_decides_nothing(scene: Scene) -> None:
    old = scene.plan()
    messages = scene.tasks(old, 0)
    plan = scene.restart()
    with pytest.raises(SinkError, match="another driver has taken over the sink"):
        scene.commit(messages, 0)
    scene.abort(messages, 0)
    scene.commit(scene.tasks(plan, 0), 0)
    scene.check(1)


def test_an_old_driver_that_aborts_disturbs_nobody(scene: Scene) -> None:
    messages = scene.tasks(scene.plan(), 0)
    plan = scene.restart()
    newer = scene.tasks(plan, 0)
    scene.abort(messages, 0)
    scene.commit(newer, 0)
    scene.check(1)


def test_a_task_of_an_old_driver_ends_by_itself(scene: Scene) -> None:
    old = scene.plan()
    plan = scene.restart()
    with pytest.raises(SinkError, match="came too late"):
        scene.write(old, 0, partition=5)
    scene.commit(scene.tasks(plan, 0), 0)
    scene.check(1)


def test_a_late_task_does_not_end_what_is_prepared_under_its_name(scene: Scene) -> None:
    """It has the name of the newer one's task: it takes the name, finds something open, and leaves it."""
    old = scene.plan()
    plan = scene.restart()
    messages = scene.tasks(plan, 0)
    with pytest.raises(SinkError, match="another attempt of this task"):
        scene.write(old, 0, partition=0)
    scene.commit(messages, 0)
    scene.check(1)


def test_losing_attempts_are_swept(scene: Scene) -> None:
    plan = scene.plan()
    losers = [scene.write(plan, 0, partition, attempt=1) for partition in range(2)]
    scene.commit(scene.tasks(plan, 0), 0)
    assert all(one.entry is not None for one in losers)
    scene.check(1)


def test_a_losing_attempt_that_prepares_after_the_decision_ends_itself(scene: Scene) -> None:
    plan = scene.plan()
    scene.commit(scene.tasks(plan, 0), 0)
    with pytest.raises(SinkError, match="came too late"):
        scene.write(plan, 0, partition=1, attempt=1)
    scene.check(1)


def test_an_aborted_batch_leaves_nothing_and_comes_again(scene: Scene) -> None:
    plan = scene.plan()
    messages = scene.tasks(plan, 0)
    scene.abort(messages, 0)
    assert scene.open_ids() == []
    scene.whole_batch(0)
    scene.check(1)


def test_what_is_decided_is_not_aborted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit raises after the decision, as when a broker is away: Spark calls abort with the same messages."""
    messages = scene.tasks(scene.plan(), 0)
    with monkeypatch.context() as patch:
        dying(scene, patch, TransactionClient, "end", 1)
        with pytest.raises(Killed):
            scene.commit(messages, 0)
    scene.abort(messages, 0)
    plan = scene.restart()
    scene.commit(scene.tasks(plan, 0), 0)
    scene.check(1)


def test_what_is_abandoned_is_not_decided(scene: Scene) -> None:
    """A decision whose writer gave up may still be under way; the place in the sequence is taken."""
    messages = scene.tasks(scene.plan(), 0)
    scene.abort(messages, 0)
    with pytest.raises(SinkError, match="does not count"):
        scene.commit(messages, 0)
    scene.whole_batch(0)
    scene.check(1)


def test_an_older_checkpoint_is_an_error(scene: Scene) -> None:
    for batch_id in range(3):
        scene.whole_batch(batch_id)
    with pytest.raises(SinkError, match=r"checkpoint is older than the sink: .* batch 2 .* at batch 1"):
        scene.tasks(scene.restart(), 1)
    scene.check(3)


def decided_only(scene: Scene, partitions: int = 2) -> None:
    """The driver dies when batch 0 is decided, and nothing of it committed."""
    messages = scene.tasks(scene.plan(), 0, partitions)
    with pytest.MonkeyPatch.context() as patch:
        dying(scene, patch, TransactionClient, "end", 0)
        with pytest.raises(Killed):
            scene.commit(messages, 0)


def test_a_decision_that_cannot_be_carried_out_is_an_error(scene: Scene) -> None:
    """Somebody has aborted by name what was decided."""
    decided_only(scene)
    scene.client.begin(task_id(scene.topic, 1, 0), 60_000)
    with pytest.raises(SinkError, match="belongs to a batch that is decided, and cannot be committed") as told:
        scene.restart()
    assert f"`headrace sink abort {scene.sink.sink_id} --lose-decided`" in str(told.value)


def test_one_that_cannot_be_committed_keeps_no_other_from_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the operator then gives up are the rows of this one only."""
    decided_only(scene, partitions=6)
    scene.client.begin(task_id(scene.topic, 0, 0), 60_000)
    monkeypatch.setattr(driver, "AT_ONCE", 1)
    with pytest.raises(SinkError, match="cannot be committed"):
        scene.restart()
    assert scene.open_ids() == []
    found = {(record.value or b"").decode() for record in scene.topics.read(scene.topic, range(2))}
    assert found == {row for partition in range(1, 6) for row in scene.rows(0, partition)}


def test_what_the_cluster_has_forgotten_is_told_as_that(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver died when all was committed but not noted, and is back after a week: the rows are there."""
    decided_only(scene)
    monkeypatch.setattr(TransactionClient, "describe", lambda *_: None)

    def forgotten(self: TransactionClient, name: str, *_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, name)

    monkeypatch.setattr(TransactionClient, "end", forgotten)
    with pytest.raises(SinkError, match=r"the cluster has forgotten it: .* committed by the driver itself unless"):
        scene.restart()


def test_a_task_that_takes_longer_than_its_transaction_may(scene: Scene) -> None:
    scene.sink = replace(scene.sink, timeout_ms=1)
    plan = scene.plan()
    options = parse_sink_options({"kafka.bootstrap.servers": scene.topics.bootstrap, "topic": scene.topic})
    writer = TaskWriter(options, sink_columns(schema("value string"), options), scene.cluster)

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": scene.rows(0, 0)})
        scene.client.begin(task_id(scene.sink.sink_id, 0, 0), 60_000)  # as the cluster does when the time is over

    with closing(writer), pytest.raises(SinkError, match=r"not written within 0\.001 s, .*maxOffsetsPerTrigger"):
        write_once(writer, rows(), plan, TaskIdentity(Batch("q", 0), 0, 0), PATIENCE_S)


def test_a_topic_that_is_deleted_keeps_no_sink_from_going_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are gone, prepared or decided; those of the next batch are in the new topic."""

    def again() -> None:
        scene.topics.delete([scene.topic])
        ensure_topic(scene.cluster, scene.topic, TopicShape(2, 1, ()))

    prepared = scene.tasks(scene.plan(), 0)
    again()
    scene.commit(prepared, 0)
    decided = scene.tasks(scene.plan(), 1)
    with monkeypatch.context() as patches:
        dying(scene, patches, TransactionClient, "end", 0)
        with pytest.raises(Killed):
            scene.commit(decided, 1)
    again()
    plan = scene.restart()
    scene.commit(scene.tasks(plan, 2), 2)
    assert scene.open_ids() == []
    found = [(record.value or b"").decode() for record in scene.topics.read(scene.topic, range(2))]
    assert sorted(found) == [*scene.rows(2, 0), *scene.rows(2, 1)]


def test_empty_batches_write_nothing(scene: Scene) -> None:
    plan = scene.plan()
    scene.commit([TaskDone(plan, "q", None, 0)], 0)
    assert scene.log().decision is None
    scene.abort([], 0)


def test_a_driver_with_a_new_producer_id_closes_the_old_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epochs of an id are used up after 32,766 batches, and an id that is not used for a week is forgotten."""
    scene.whole_batch(0)
    old = scene.plan()
    messages = scene.tasks(old, 1)
    stranger = scene.client.begin(f"{scene.topic}-stranger", 60_000).identity
    driver._known.clear()
    with monkeypatch.context() as patch:
        patch.setattr(driver, "_acquire", lambda *_: (Identity(stranger.producer_id, 0), True))
        plan = scene.plan()
    with pytest.raises(SinkError, match="another driver"):
        scene.commit(messages, 1)
    scene.commit(scene.tasks(plan, 1), 1)
    scene.check(2)


def test_a_decision_that_the_broker_should_have_refused_is_void(scene: Scene) -> None:
    """The broker has forgotten the epoch of an old driver: the log itself tells that its decision is void, and the
    valid one is written again so that compaction does not lose it."""
    scene.whole_batch(0)
    old = scene.plan()
    scene.whole_batch(1)
    forgotten = scene.client.begin(f"{scene.topic}-forgotten", 60_000).identity
    journal = Journal.open(scene.cluster, scene.topic, PATIENCE_S)
    late = Decision(old.fence_offset, Batch("q", 1), (), 0)
    journal.append(forgotten, 0, late)
    assert scene.log().void_last
    scene.restart()
    log = scene.log()
    assert not log.void_last
    assert log.done
    assert log.decision is not None
    assert log.decision.entries
    records = [record.record for record in journal.read(journal.start(), journal.end())]
    assert isinstance(records[-1], Decision)
    assert Done(Batch("q", 1)) in records
    scene.whole_batch(2)
    scene.check(3)


def test_a_foreign_cluster_is_not_taken_for_one_that_prepares(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without explicit prepare the default is at least once; exactly once, where it is asked for, still works."""
    monkeypatch.setattr("headrace.spark.client.transactions.TWO_PHASE_SINCE", 99)
    assert plan_batch(scene.cluster, scene.sink, PATIENCE_S, needs_prepare=True) is None
    plan = plan_batch(scene.cluster, scene.sink, PATIENCE_S, needs_prepare=False)
    assert plan is not None
    assert not plan.two_phase
    losers = [scene.write(plan, 0, 1, attempt=1)]
    scene.commit(scene.tasks(plan, 0), 0)
    assert losers
    scene.check(1)
    with pytest.raises(KafkaError):
        scene.client.end(task_id(scene.topic, 1, 1), Identity(0, 0), commit=True)


def test_the_demo_reads_past_markers(scene: Scene) -> None:
    """The end of every partition is a marker, which no consumer gets."""
    scene.whole_batch(0)
    found = sorted(
        (message.value() or b"").decode() for message in read_topic(scene.topics.bootstrap, scene.topic)
    )
    assert found == sorted(row for partition in range(2) for row in scene.rows(0, partition))

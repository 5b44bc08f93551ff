"""The exactly-once sink on a Kafka that cannot prepare transactions: Apache Kafka itself, only with `--with-java`.

What Spark calls is called here, without Spark: the protocol is the same, and what differs is the broker.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.client.transactions import TransactionClient
from headrace.spark.sink.columns import sink_columns
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.once import driver
from headrace.spark.sink.once.decisions import Batch
from headrace.spark.sink.once.driver import commit_batch
from headrace.spark.sink.once.messages import TaskDone
from headrace.spark.sink.once.plan import Plan
from headrace.spark.sink.once.task import TaskIdentity, write_once
from headrace.spark.sink.options import SinkOptions, parse_sink_options
from headrace.spark.sink.task import TaskWriter
from headrace.spark.sink.writer import _warn_of_window, plan_stream_batch
from headrace.testing.apache_kafka import ApacheKafka
from tests.spark.topics import Topics
from tests.unit.spark.sink.schemas import schema

PATIENCE_S = 120.0
WAIT_S = 300.0
pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """One that looks for transactions that are too old twice a second, not every ten seconds."""
    with ApacheKafka({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}) as running:
        yield running.bootstrap


@pytest.fixture
def cluster(kafka: str) -> Iterator[BlockingCluster]:
    driver._known.clear()
    _warn_of_window.cache_clear()
    cluster = BlockingCluster(ClusterSettings(kafka))
    yield cluster
    cluster.close()


def sink(kafka: str, topic: str, **more: str) -> SinkOptions:
    return parse_sink_options({"kafka.bootstrap.servers": kafka, "topic": topic, "sinkId": topic, **more})


def exactly_once(kafka: str, topic: str, timeout_ms: int) -> SinkOptions:
    more = {"delivery": "exactly-once", "kafka.transaction.timeout.ms": str(timeout_ms)}
    return sink(kafka, topic, **more)


def planned(options: SinkOptions) -> Plan:
    driver._known.clear()  # as a driver that has just started
    plan = plan_stream_batch(options)
    assert plan is not None
    return plan


def write(options: SinkOptions, cluster: BlockingCluster, plan: Plan, batch_id: int, partition: int) -> TaskDone:
    writer = TaskWriter(options, sink_columns(schema("value string"), options), cluster)
    rows = pa.RecordBatch.from_pydict({"value": [f"{batch_id}/{partition}/{number}" for number in range(5)]})
    try:
        task = TaskIdentity(Batch("query", batch_id), partition, 0)
        return write_once(writer, iter([rows]), plan, task, PATIENCE_S)
    finally:
        writer.close()


def test_a_stream_is_written_at_least_once_unless_it_asks_for_more(kafka: str) -> None:
    topic = Topics(kafka).create(partitions=1)
    assert plan_stream_batch(sink(kafka, topic)) is None


def test_exactly_once_works_and_says_what_it_depends_on(
    kafka: str, cluster: BlockingCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics(kafka)
    options = exactly_once(kafka, topics.create(partitions=2), 60_000)
    with caplog.at_level(logging.WARNING):
        for batch_id in range(2):
            plan = planned(options)
            assert not plan.two_phase
            done = [write(options, cluster, plan, batch_id, partition) for partition in range(2)]
            commit_batch(cluster, done, batch_id, PATIENCE_S)
    (said,) = [record.getMessage() for record in caplog.records if "cannot prepare" in record.getMessage()]
    assert f"The cluster at {kafka} cannot prepare transactions" in said
    assert "within 60 s" in said
    assert "the cluster aborts what was decided" in said
    found = Counter(record.value for record in topics.read(str(options.topic), range(2)))
    assert found == Counter(b"%d/%d/%d" % (b, p, n) for b in range(2) for p in range(2) for n in range(5))
    assert TransactionClient(cluster).open_ids("hr.sink.") == []


def test_a_decision_that_nobody_carried_out_in_time_is_an_error(
    kafka: str, cluster: BlockingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies after its decision, and is back only when the cluster has aborted what was decided."""
    options = exactly_once(kafka, Topics(kafka).create(partitions=1), 5_000)
    plan = planned(options)
    done = [write(options, cluster, plan, 0, 0)]

    class Killed(BaseException):
        """The process ends here."""

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(TransactionClient, "end", killed)
        with pytest.raises(Killed):
            commit_batch(cluster, done, 0, PATIENCE_S)
    give_up_s = time.monotonic() + WAIT_S
    while TransactionClient(cluster).open_ids("hr.sink."):
        assert time.monotonic() < give_up_s, "the cluster does not abort it"
        time.sleep(0.2)
    with pytest.raises(SinkError, match="decided, and cannot be committed any more"):
        planned(options)

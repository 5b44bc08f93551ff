"""Spark's client against a real broker: topics, offsets, restarts, forks and threads."""

from __future__ import annotations

import os
import threading
import time

import pytest

from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.spark.client.cluster import (
    EARLIEST,
    LATEST,
    BlockingCluster,
    ClusterSettings,
    FoundOffset,
    shared_cluster,
)
from tests.conftest import StartBroker
from tests.spark.topics import Topics
from tests.unit.spark.client.test_cluster import LONG_S


def test_topics_and_offsets(bootstrap: str) -> None:
    topics = Topics(bootstrap)
    name = topics.create(partitions=2)
    topics.send(name, [b"a", b"b", b"c"], partition=0, timestamp_ms=5000)
    cluster = BlockingCluster(ClusterSettings(bootstrap))
    found = cluster.topics([name, "no-such-topic"])
    assert list(found) == [name]
    assert found[name].partition_count == 2
    assert set(found[name].leaders) == {0, 1}
    assert len(found[name].topic_id) == 22
    assert found[name] == cluster.topics()[name]
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    ends = cluster.list_offsets({first: LATEST, second: LATEST})
    assert {place: one.offset for place, one in ends.items() if one} == {first: 3, second: 0}
    start = cluster.list_offsets({first: EARLIEST}, isolation=1)[first]
    assert start is not None
    assert start.offset == 0
    assert cluster.list_offsets({first: 4000, second: 4000}) == {first: FoundOffset(0, 5000), second: None}
    assert cluster.list_offsets({first: 6000}) == {first: None}
    cluster.close()


def test_a_missing_topic_is_final_at_once(bootstrap: str) -> None:
    cluster = BlockingCluster(ClusterSettings(bootstrap, request_timeout_s=LONG_S))
    began = time.monotonic()
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: topic no-such-topic"):
        cluster.list_offsets({TopicPartition("no-such-topic", 0): LATEST})
    assert time.monotonic() - began < LONG_S / 2
    cluster.close()


def test_offsets_are_committed_without_a_member(bootstrap: str) -> None:
    """R-SPK-1: lag tools see Spark."""
    topics = Topics(bootstrap)
    name = topics.create()
    cluster = BlockingCluster(ClusterSettings(bootstrap))
    cluster.commit_offsets("spark-group", {TopicPartition(name, 0): 7})
    assert topics.committed("spark-group", name) == 7
    cluster.commit_offsets("spark-group", {})
    cluster.close()


def test_each_producer_has_its_own_id(bootstrap: str) -> None:
    cluster = BlockingCluster(ClusterSettings(bootstrap))
    first, second = cluster.producer_id(), cluster.producer_id()
    assert first.id != second.id
    cluster.close()


def test_a_restarted_broker_is_found_again(own_broker: StartBroker) -> None:
    broker = own_broker()
    cluster = BlockingCluster(ClusterSettings(broker.bootstrap))
    assert cluster.topics() == {}
    broker.kill()
    answers: list[object] = []
    asking = threading.Thread(target=lambda: answers.append(cluster.topics()))
    asking.start()
    time.sleep(0.3)
    broker.start()
    asking.join()
    assert answers == [{}]
    cluster.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_shares_no_connection(bootstrap: str) -> None:
    """Spark's workers are forked: answers must not end up in the wrong process."""
    settings = ClusterSettings(bootstrap)
    parent = shared_cluster(settings)
    parent.topics()
    with parent.entry() as connection:
        fileno = connection.fileno()
    child = os.fork()
    if child == 0:
        mine = shared_cluster(settings)
        good = mine is not parent
        mine.topics()
        parent.topics()  # a cluster that was brought along begins anew
        with parent.entry() as other:
            good = good and other is not connection
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    parent.topics()
    with parent.entry() as connection:
        assert connection.fileno() == fileno
    parent.close()


def test_threads_do_not_disturb_each_other(bootstrap: str) -> None:
    cluster = BlockingCluster(ClusterSettings(bootstrap))
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(30):
                cluster.topics()
                cluster.producer_id()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    cluster.close()

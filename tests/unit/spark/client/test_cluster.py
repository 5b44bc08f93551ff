"""What a Spark process asks of a cluster; the parts with `bootstrap` run against a real broker, either kind."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from headrace.client.errors import NoneReachable, RequestTimedOut
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.spark.client.cluster import (
    EARLIEST,
    LATEST,
    MAX_IDLE_PER_BROKER,
    BlockingCluster,
    ClusterSettings,
    FoundOffset,
    shared_cluster,
)
from headrace.testing.process import free_port
from headrace.wire.api_keys import ApiKey
from tests.unit.spark.client.fake_cluster import PRODUCER_ID, FakeCluster

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
LONG_S = 100.0
"""Nobody waits that long by mistake, on however busy a machine."""


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as cluster:
        cluster.create("t", 2)
        yield cluster


def client(fake: FakeCluster, timeout_s: float = 60.0) -> BlockingCluster:
    return BlockingCluster(ClusterSettings(fake.bootstrap, request_timeout_s=timeout_s, connect_timeout_s=60.0))


# --- with a real broker


# --- retries


def test_passing_errors_are_tried_again(fake: FakeCluster) -> None:
    errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION]
    fake.interfere = lambda broker, key: errors.pop() if key == ApiKey.LIST_OFFSETS and errors else None
    assert client(fake).list_offsets({T0: EARLIEST})[T0] == FoundOffset(0, -1)
    assert not errors


def test_a_leader_that_moves_is_looked_up_again(fake: FakeCluster) -> None:
    cluster = client(fake)
    assert cluster.leader(T0) == 1
    fake.leaders[T0] = 2
    fake.logs[T0].fill(10)
    assert cluster.list_offsets({T0: LATEST, T1: LATEST}) == {T0: FoundOffset(10, -1), T1: FoundOffset(0, -1)}
    assert cluster.leader(T0) == 2


def test_a_lost_connection_is_opened_again(fake: FakeCluster) -> None:
    drops = ["drop", "lose"]
    fake.interfere = lambda broker, key: drops.pop() if key == ApiKey.INIT_PRODUCER_ID and drops else None
    assert client(fake).producer_id().id == PRODUCER_ID


def test_the_time_is_limited(fake: FakeCluster) -> None:
    fake.interfere = lambda broker, key: ErrorCode.LEADER_NOT_AVAILABLE if key == ApiKey.LIST_OFFSETS else None
    began = time.monotonic()
    with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE: partition t-0"):
        client(fake, timeout_s=0.5).list_offsets({T0: LATEST})
    assert time.monotonic() - began > 0.4


def test_silence_is_named(fake: FakeCluster) -> None:
    fake.interfere = lambda broker, key: "silence" if key == ApiKey.LIST_OFFSETS else None
    with pytest.raises(RequestTimedOut, match=r"did not answer ListOffsets in 0\.3 s"):
        client(fake, timeout_s=0.3).list_offsets({T0: LATEST})


def test_a_final_error_is_not_tried_again(fake: FakeCluster) -> None:
    fake.interfere = lambda broker, key: (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED if key == ApiKey.LIST_OFFSETS else None
    )
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED: partition t-0"):
        client(fake).list_offsets({T0: LATEST})
    assert fake.count(ApiKey.LIST_OFFSETS) == 1


def test_a_topic_that_was_there_may_be_unknown_for_a_moment(fake: FakeCluster) -> None:
    cluster = client(fake)
    cluster.topics(["t"])
    errors = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    fake.interfere = lambda broker, key: errors.pop() if key == ApiKey.LIST_OFFSETS and errors else None
    assert cluster.list_offsets({T0: LATEST})[T0] == FoundOffset(0, -1)


def test_a_broker_never_reached_is_not_waited_for_unless_patient() -> None:
    port = free_port()
    settings = ClusterSettings(f"127.0.0.1:{port}", request_timeout_s=LONG_S)
    began = time.monotonic()
    with pytest.raises(NoneReachable, match="nothing listens there"):
        BlockingCluster(settings).topics()
    began, before = time.monotonic(), began
    assert began - before < LONG_S / 2
    patient = ClusterSettings(f"127.0.0.1:{port}", request_timeout_s=0.6, patient=True)
    with pytest.raises(NoneReachable):
        BlockingCluster(patient).topics()
    assert time.monotonic() - began > 0.5


def test_the_next_bootstrap_server_is_tried(fake: FakeCluster) -> None:
    settings = ClusterSettings(f"127.0.0.1:{free_port()},{fake.bootstrap}")
    assert list(BlockingCluster(settings).topics()) == ["t"]


# --- connections


def test_connections_are_kept_and_stale_ones_replaced(fake: FakeCluster) -> None:
    cluster = client(fake)
    with cluster.borrow(1) as first:
        pass
    with cluster.borrow(1) as again:
        assert again is first
        with cluster.borrow(1) as other:
            assert other is not first
    fake.interfere = lambda broker, key: "drop"
    ticket_free = cluster.take(2)
    cluster.give_back(ticket_free)
    fake._sockets[-1].shutdown(2)
    time.sleep(0.05)
    with cluster.borrow(2) as fresh:
        assert fresh is not ticket_free
    cluster.close()


def test_the_pool_is_limited(fake: FakeCluster) -> None:
    cluster = client(fake)
    taken = [cluster.take(1) for _ in range(MAX_IDLE_PER_BROKER + 2)]
    for connection in taken:
        cluster.give_back(connection)
    assert sum(not connection.closed for connection in taken) == MAX_IDLE_PER_BROKER
    cluster.close()
    assert all(connection.closed for connection in taken)


def test_one_cluster_per_settings(fake: FakeCluster) -> None:
    settings = ClusterSettings(fake.bootstrap)
    assert shared_cluster(settings) is shared_cluster(ClusterSettings(fake.bootstrap))
    assert shared_cluster(settings) is not shared_cluster(ClusterSettings(fake.bootstrap, "another"))
    shared_cluster(settings).close()

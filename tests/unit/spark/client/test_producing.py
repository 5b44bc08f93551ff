"""Batches reach their partitions once and in order, whatever happens on the way (R-PRO-3)."""

from __future__ import annotations

import gc
import random
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from headrace.client.buffers import KEPT_FROM_BYTES, ReusedBuffers, is_unused
from headrace.client.errors import NoneReachable
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import parse_header
from headrace.records.builder import NewRecord, build_batch
from headrace.records.compression import Codec
from headrace.records.reader import read_records
from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.client.producing import BatchProducer, cut_batch
from headrace.wire.api_keys import ApiKey
from tests.unit.spark.client import fake_cluster
from tests.unit.spark.client.fake_cluster import PRODUCER_ID, FakeCluster

PLACES = [TopicPartition("t", index) for index in range(4)]
T0 = PLACES[0]


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as cluster:
        cluster.create("t", len(PLACES))
        yield cluster


def client(fake: FakeCluster, timeout_s: float = 60.0) -> BlockingCluster:
    return BlockingCluster(ClusterSettings(fake.bootstrap, request_timeout_s=timeout_s, connect_timeout_s=60.0))


def batch(first: int, count: int = 3, size: int = 6) -> bytearray:
    return build_batch([NewRecord(b"%0*d" % (size, first + index), timestamp=1) for index in range(count)])


def deliver(producer: BatchProducer, place: TopicPartition, data: bytearray, count: int) -> None:
    producer.send(place, data, count)
    producer.flush()


def send_all(producer: BatchProducer, places: list[TopicPartition], batches: int = 40) -> None:
    for number in range(batches):
        for place in places:
            producer.send(place, batch(3 * number), 3)
    producer.flush()


def expected(batches: int = 40) -> list[bytes]:
    return [b"%06d" % number for number in range(3 * batches)]


# --- with a real broker


# --- what goes out


def test_batches_are_stamped_and_follow_each_other(fake: FakeCluster) -> None:
    producer = BatchProducer(client(fake))
    send_all(producer, [T0], batches=7)
    headers = [parse_header(one) for one in fake.logs[T0].batches]
    assert {header.producer_id for header in headers} == {PRODUCER_ID}
    assert [header.base_sequence for header in headers] == list(range(0, 21, 3))


def test_without_idempotence_nothing_is_stamped(fake: FakeCluster) -> None:
    producer = BatchProducer(client(fake), acks=1, idempotent=False)
    send_all(producer, [T0], batches=5)
    assert {parse_header(one).producer_id for one in fake.logs[T0].batches} == {-1}
    assert fake.logs[T0].values() == expected(5)
    assert fake.count(ApiKey.INIT_PRODUCER_ID) == 0


def test_requests_under_way_are_limited(fake: FakeCluster) -> None:
    fake.interfere = lambda broker, key: "silence" if key == ApiKey.PRODUCE else None
    producer = BatchProducer(client(fake))
    for number in range(20):
        producer.send(T0, batch(3 * number), 3)
    time.sleep(0.1)
    (link,) = producer._links.values()
    assert link.connection.outstanding == 5


def test_partitions_of_a_broker_share_a_request(fake: FakeCluster) -> None:
    """What piles up while requests are under way goes out together."""
    may_answer = threading.Event()

    def hold_produce(broker: int, key: int) -> None:
        if key == ApiKey.PRODUCE:
            may_answer.wait()

    fake.interfere = hold_produce
    producer = BatchProducer(client(fake), max_in_flight=1)
    for number in range(50):
        for place in PLACES:
            producer.send(place, batch(3 * number), 3)
    may_answer.set()
    producer.flush()
    assert fake.count(ApiKey.PRODUCE) <= 2 * 51, "each of two brokers gets one alone, then two at a time"
    for place in PLACES:
        assert fake.logs[place].values() == expected(50)


def test_what_waits_is_limited(fake: FakeCluster) -> None:
    """`send` waits for answers rather than keep everything in memory."""
    producer = BatchProducer(client(fake), max_buffered_bytes=2000)
    for number in range(100):
        producer.send(T0, batch(3 * number), 3)
    assert len(fake.logs[T0].batches) > 60
    producer.flush()
    assert fake.logs[T0].values() == expected(100)


def test_memory_of_a_batch_is_used_again_once_it_is_acknowledged(fake: FakeCluster) -> None:
    memory = ReusedBuffers(2)
    size = KEPT_FROM_BYTES + 1
    first = build_batch([NewRecord(b"x" * size, timestamp=1)])

    def taken() -> memoryview:
        view = memory.take(len(first))
        view[:] = first
        return view

    producer = BatchProducer(client(fake))
    fake.interfere = lambda broker, key: "silence" if key == ApiKey.PRODUCE else None
    producer.send(T0, taken(), 1)
    assert not is_unused(memory._kept[0]), "it may have to be sent again"
    producer.send(T0, taken(), 1)
    assert len(memory._kept) == 2
    fake.interfere = lambda broker, key: None
    for link in producer._links.values():
        link.connection._socket.shutdown(socket.SHUT_RDWR)
    del link  # it knows of its error, which knows who met it
    producer.flush()
    gc.collect()
    assert all(is_unused(buffer) for buffer in memory._kept)
    assert fake.logs[T0].values() == [b"x" * size] * 2
    producer.close()


# --- trouble


@pytest.mark.parametrize("seed", range(8))
def test_any_mixture_of_trouble_writes_everything_once_and_in_order(fake: FakeCluster, seed: int) -> None:
    chance = random.Random(seed)
    troubles: list[ErrorCode | str] = [
        "drop",
        "lose",
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]

    def interfere(broker: int, key: int) -> ErrorCode | str | None:
        if chance.random() < 0.02:
            fake.leaders[chance.choice(PLACES)] = chance.choice([1, 2])
        if key == ApiKey.PRODUCE:
            return chance.choice(troubles) if chance.random() < 0.08 else None
        return "drop" if chance.random() < 0.05 else None

    cluster = client(fake, 10.0)
    producer = BatchProducer(cluster)
    fake.interfere = interfere
    send_all(producer, PLACES, batches=60)
    for place in PLACES:
        assert fake.logs[place].values() == expected(60)
    producer.close()


def test_an_accepted_batch_means_that_those_before_it_are_there(fake: FakeCluster) -> None:
    """A first batch that is written, then refused again and again, falls out of what the broker remembers."""
    refusals = iter(["lose", *[ErrorCode.NOT_ENOUGH_REPLICAS, None, None, None, None] * 3])
    fake.interfere = lambda broker, key: next(refusals, None) if key == ApiKey.PRODUCE else None
    producer = BatchProducer(client(fake))
    send_all(producer, [T0], batches=30)
    assert fake.logs[T0].values() == expected(30)


def test_a_broker_that_remembers_only_the_last_batch(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Apache Kafka does after kill -9: those before the last one are out of order for it, and there."""
    monkeypatch.setattr(fake_cluster, "REMEMBERED_BATCHES", 1)
    answers = iter([None, None, "mute", "mute", "lose"])
    fake.interfere = lambda broker, key: next(answers, None) if key == ApiKey.PRODUCE else None
    producer = BatchProducer(client(fake))
    send_all(producer, [T0], batches=30)
    assert fake.logs[T0].values() == expected(30)


def test_a_silent_broker_is_given_up_and_asked_again(fake: FakeCluster) -> None:
    silences = ["silence"] * 2
    fake.interfere = lambda broker, key: silences.pop() if key == ApiKey.PRODUCE and silences else None
    producer = BatchProducer(client(fake, timeout_s=0.3))
    send_all(producer, [T0], batches=8)
    assert fake.logs[T0].values() == expected(8)


def test_the_time_to_deliver_is_limited(fake: FakeCluster) -> None:
    fake.interfere = lambda broker, key: ErrorCode.NOT_ENOUGH_REPLICAS if key == ApiKey.PRODUCE else None
    producer = BatchProducer(client(fake), delivery_timeout_s=0.4)
    with pytest.raises(KafkaError, match=r"partition t-0 were not acknowledged in 0.4 s; .*NOT_ENOUGH_REPLICAS"):
        deliver(producer, T0, batch(0), 3)
    producer.close()


def test_a_final_error_names_the_partition(fake: FakeCluster) -> None:
    fake.interfere = lambda broker, key: ErrorCode.TOPIC_AUTHORIZATION_FAILED if key == ApiKey.PRODUCE else None
    producer = BatchProducer(client(fake))
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED: records for partition t-0 were refused"):
        send_all(producer, [T0])


def test_a_broker_that_lost_what_it_acknowledged_is_an_error(fake: FakeCluster) -> None:
    producer = BatchProducer(client(fake))
    send_all(producer, [T0], batches=4)
    fake.logs[T0].batches.clear()
    with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER: records for partition t-0"):
        send_all(producer, [T0], batches=1)


def test_a_deleted_topic_is_an_error(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark.client.producing.MISSING_TOPIC_GRACE_S", 0.2)
    producer = BatchProducer(client(fake))
    send_all(producer, [T0], batches=2)
    fake.logs.clear()
    fake.leaders.clear()
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        send_all(producer, [T0], batches=1)


def test_a_cluster_that_is_gone(fake: FakeCluster) -> None:
    producer = BatchProducer(client(fake), delivery_timeout_s=0.5)
    fake.__exit__(None, None, None)
    with pytest.raises((KafkaError, NoneReachable), match=r"nothing listens there|lost|refused"):
        send_all(producer, [T0], batches=1)


def test_a_batch_cut_in_two_keeps_its_records() -> None:
    records = [NewRecord(b"v%d" % n, b"k", 1000 + n, [("h", None), ("i", b"x")]) for n in range(5)]
    whole = build_batch(records, codec=Codec.ZSTD)
    halves = cut_batch(whole)
    assert [(first, count) for first, count, _ in halves] == [(0, 2), (2, 3)]
    found = [record for _, _, half in halves for record in read_records(half)]
    assert [(one.value, one.key, one.timestamp, one.headers) for one in found] == [
        (one.value, one.key, one.timestamp, tuple(one.headers)) for one in records
    ]
    assert {parse_header(half).codec for _, _, half in halves} == {Codec.ZSTD}

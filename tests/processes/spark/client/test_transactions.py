"""The transactional requests of the blocking client, with a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka as ck
import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.client.producing import BatchProducer
from headrace.spark.client.transactions import NOBODY, Identity, InTransaction, TransactionClient
from tests.spark.topics import Topics

TIMEOUT_MS = 60_000
pytestmark = pytest.mark.headrace_only


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[BlockingCluster]:
    made = BlockingCluster(ClusterSettings(bootstrap))
    yield made
    made.close()


def write(cluster: BlockingCluster, name: str, identity: Identity, topic: str, values: list[bytes]) -> None:
    producer = BatchProducer(cluster)
    producer.begin(InTransaction(name, identity))
    places = [TopicPartition(topic, index) for index in range(2)]
    producer.announce(places)
    for place in places:
        for value in values:
            producer.send(place, build_batch([NewRecord(value, timestamp=1)]), 1)
    producer.flush()
    producer.close()


def committed(topics: Topics, topic: str, count: int) -> list[bytes | None]:
    """What a reader of committed records gets; it stops before what is open."""
    consumer = ck.Consumer(
        {"bootstrap.servers": topics.bootstrap, "group.id": "g", "isolation.level": "read_committed"}
    )
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(2)])
    found: list[bytes | None] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, found
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return sorted(found)  # type: ignore[type-var]


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code is code)


def test_prepared_transactions_are_ended_by_whoever_has_the_name(cluster: BlockingCluster, bootstrap: str) -> None:
    topics = Topics(bootstrap)
    topic = topics.create(partitions=2)
    client = TransactionClient(cluster)
    begun = client.begin(f"{topic}.a", TIMEOUT_MS)
    write(cluster, f"{topic}.a", begun.identity, topic, [b"one", b"two"])
    prepared = client.prepare(f"{topic}.a", begun.identity)
    assert prepared.ongoing == begun.identity
    assert client.open_ids(f"{topic}.") == [f"{topic}.a"]
    taken = client.take_over(f"{topic}.a", TIMEOUT_MS)
    assert taken.ongoing == begun.identity
    with refused(ErrorCode.PRODUCER_FENCED):
        client.end(f"{topic}.a", prepared.identity, commit=False)
    client.end(f"{topic}.a", taken.identity, commit=True)
    client.end(f"{topic}.a", taken.identity, commit=True)
    assert committed(topics, topic, 4) == [b"one", b"one", b"two", b"two"]
    assert client.open_ids(f"{topic}.") == []
    assert client.take_over(f"{topic}.a", TIMEOUT_MS).ongoing == NOBODY
    assert client.describe(f"{topic}.other") is None
    topics.delete([topic])


def test_beginning_aborts_what_is_open(cluster: BlockingCluster, bootstrap: str) -> None:
    topics = Topics(bootstrap)
    topic = topics.create(partitions=2)
    client = TransactionClient(cluster)
    first = client.begin(topic, TIMEOUT_MS).identity
    write(cluster, topic, first, topic, [b"no"])
    second = client.begin(topic, TIMEOUT_MS).identity
    with refused(ErrorCode.PRODUCER_FENCED):
        client.prepare(topic, first)
    write(cluster, topic, second, topic, [b"yes"])
    client.end(topic, client.prepare(topic, second).identity, commit=True)
    assert committed(topics, topic, 2) == [b"yes", b"yes"]
    topics.delete([topic])


def test_what_is_prepared_again_after_a_lost_answer_is_still_ours(bootstrap: str) -> None:
    """The broker has heard the first request; its answer was lost, and the name has another identity by then."""
    topics = Topics(bootstrap)
    topic = topics.create(partitions=2)
    direct = BlockingCluster(ClusterSettings(bootstrap))
    client = TransactionClient(direct)
    begun = client.begin(topic, TIMEOUT_MS).identity
    write(direct, topic, begun, topic, [b"x"])
    broker = direct.coordinator(topic, 1)
    connection = direct.take(broker)
    asked: list[object] = []
    real = type(connection).request

    def lose_the_first(self, message, answer, **options):  # type: ignore[no-untyped-def]
        response = real(self, message, answer, **options)
        if type(message).__name__ == "InitProducerIdRequest":
            asked.append(message)
            if len(asked) == 1:
                self.close()
                raise self._protocol.lost()
        return response

    direct.give_back(connection)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(connection), "request", lose_the_first)
        prepared = client.prepare(topic, begun)
    assert len(asked) == 2
    assert prepared.ongoing == begun
    client.end(topic, prepared.identity, commit=False)
    direct.close()
    topics.delete([topic])

"""Records written to a real broker, also through a bad network and across its death."""

from __future__ import annotations

import pytest

from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.client.producing import BatchProducer
from headrace.testing.tcp_proxy import CuttingProxy
from tests.conftest import StartBroker
from tests.spark.topics import Topics
from tests.unit.spark.client.test_producing import batch, deliver, expected, send_all


def test_a_real_broker_takes_them(bootstrap: str) -> None:
    topics = Topics(bootstrap)
    name = topics.create(partitions=3)
    cluster = BlockingCluster(ClusterSettings(bootstrap))
    producer = BatchProducer(cluster)
    send_all(producer, [TopicPartition(name, index) for index in range(3)])
    producer.close()
    for index in range(3):
        assert [record.value for record in topics.read(name, [index])] == expected()
    cluster.close()


@pytest.mark.parametrize("acks", [1, 0])
def test_weaker_acknowledgements(bootstrap: str, acks: int) -> None:
    topics = Topics(bootstrap)
    name = topics.create()
    producer = BatchProducer(BlockingCluster(ClusterSettings(bootstrap)), acks=acks, idempotent=False)
    send_all(producer, [TopicPartition(name, 0)])
    producer.close()
    assert [record.value for record in topics.read(name)] == expected()


def test_one_record_too_large_for_a_topic(bootstrap: str) -> None:
    topics = Topics(bootstrap)
    name = topics.create(configs={"max.message.bytes": "2000"})
    producer = BatchProducer(BlockingCluster(ClusterSettings(bootstrap)))
    with pytest.raises(
        KafkaError, match=r"MESSAGE_TOO_LARGE: a record for partition .* raise its max.message.bytes"
    ):
        deliver(producer, TopicPartition(name, 0), build_batch([NewRecord(bytes(5000), timestamp=1)]), 1)
    producer.close()


def test_batches_too_large_for_a_topic_are_cut(bootstrap: str) -> None:
    topics = Topics(bootstrap)
    name = topics.create(configs={"max.message.bytes": "2000"})
    producer = BatchProducer(BlockingCluster(ClusterSettings(bootstrap)))
    place = TopicPartition(name, 0)
    for first in range(0, 600, 100):
        producer.send(place, batch(first, 100, size=50), 100)
    producer.flush()
    assert [int(record.value or b"") for record in topics.read(name)] == list(range(600))
    assert (producer.accepted_bytes(name) or 0) < 2000
    producer.close()


def test_a_network_that_cuts_connections(own_broker: StartBroker) -> None:
    """No record twice, none missing: the broker recognises what is sent again."""
    with CuttingProxy(seed=5) as proxy:
        broker = own_broker({"advertised.listeners": f"PLAINTEXT://{proxy.address}"})
        proxy.point_at(broker.bootstrap)
        proxy.cutting = False
        topics = Topics(proxy.address)
        name = topics.create(partitions=2)
        cluster = BlockingCluster(ClusterSettings(proxy.address, request_timeout_s=60.0))
        producer = BatchProducer(cluster)
        proxy.cutting = True
        send_all(producer, [TopicPartition(name, 0), TopicPartition(name, 1)], batches=300)
        producer.close()
        proxy.cutting = False
        assert proxy.cuts > 3
        for index in range(2):
            assert [record.value for record in topics.read(name, [index])] == expected(300)


def test_a_broker_that_is_killed_and_comes_back(own_broker: StartBroker) -> None:
    broker = own_broker()
    topics = Topics(broker.bootstrap)
    name = topics.create()
    place = TopicPartition(name, 0)
    producer = BatchProducer(BlockingCluster(ClusterSettings(broker.bootstrap, request_timeout_s=60.0)))
    for number in range(100):
        producer.send(place, batch(3 * number), 3)
    broker.kill()
    for number in range(100, 150):
        producer.send(place, batch(3 * number), 3)
    broker.start()
    producer.flush()
    producer.close()
    assert [record.value for record in Topics(broker.bootstrap).read(name)] == expected(150)

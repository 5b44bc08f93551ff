"""R-TOP-5: topics come and go: thousands of them, created by hand or by use, deleted, and created again empty."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

from headrace.testing.raw_client import RawClient, build_batch
from tests.compat.clients import Confluent, Record, confluent_consumer, poll_confluent
from tests.compat.confluent_admin import AdminClient, NewTopic
from tests.compat.conftest import unique_name, wait_until_served
from tests.conftest import StartBroker

TIMEOUT_S = 60.0
MANY = 2_000
AT_ONCE = 250


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def make(bootstrap: str, admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    wait_until_served(bootstrap, name, 1)


def delete(admin: AdminClient, name: str) -> None:
    admin.delete_topics([name])[name].result(TIMEOUT_S)
    eventually(lambda: name not in admin.list_topics().topics)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_thousands_of_topics(own_broker: StartBroker) -> None:
    """R-TOP-5: create 2,000, list them, write to some, delete all."""
    server = own_broker()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    names = [f"many-{number}" for number in range(MANY)]
    for start in range(0, MANY, AT_ONCE):
        futures = admin.create_topics([NewTopic(name, 1, 1) for name in names[start : start + AT_ONCE]])
        for future in futures.values():
            future.result(TIMEOUT_S)
    eventually(lambda: set(names) <= set(admin.list_topics(timeout=TIMEOUT_S).topics))
    producer = ck.Producer({"bootstrap.servers": server.bootstrap, "message.timeout.ms": 20_000})
    errors: list[ck.KafkaError] = []
    for name in names[::10]:
        producer.produce(name, b"v", on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []
    for start in range(0, MANY, AT_ONCE):
        for future in admin.delete_topics(names[start : start + AT_ONCE]).values():
            future.result(TIMEOUT_S)
    eventually(lambda: not set(names) & set(admin.list_topics(timeout=TIMEOUT_S).topics))


def test_a_topic_made_again_is_empty(bootstrap: str, admin: AdminClient) -> None:
    """R-TOP-5: never old data, also right after, also again and again."""
    name = unique_name("again")
    for life in range(5):
        make(bootstrap, admin, name)
        values = [b"life %d record %d" % (life, number) for number in range(life + 1)]
        placed = Confluent().produce(bootstrap, name, [Record(value) for value in values])
        assert [offset for _, offset in placed] == list(range(life + 1))
        assert [one.value for one in Confluent().read(bootstrap, name, 0, life + 1)] == values
        delete(admin, name)


def test_a_topic_made_again_has_another_id(bootstrap: str, admin: AdminClient) -> None:
    """KIP-516: a client that still holds the old id must not reach the new topic."""
    name = unique_name("again")
    ids = []
    for _ in range(2):
        make(bootstrap, admin, name)
        described = admin.describe_topics(ck.TopicCollection([name]))[name].result(TIMEOUT_S)
        ids.append(str(described.topic_id))
        delete(admin, name)
    assert ids[0] != ids[1]


def test_a_consumer_lives_through_deletion_and_return(bootstrap: str, admin: AdminClient) -> None:
    """A consumer that reads while its topic is deleted and created again ends on the new topic's data, only."""
    name = unique_name("again")
    make(bootstrap, admin, name)
    Confluent().produce(bootstrap, name, [Record(b"old %d" % number) for number in range(5)])
    consumer = confluent_consumer(bootstrap, topic_metadata_refresh_interval_ms=500)
    consumer.assign([ck.TopicPartition(name, 0, 0)])
    assert len(poll_confluent(consumer, 5)) == 5
    delete(admin, name)
    make(bootstrap, admin, name)
    Confluent().produce(bootstrap, name, [Record(b"new %d" % number) for number in range(20)])
    seen: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not seen or seen[-1] != b"new 19":
        assert time.monotonic() < deadline, seen
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.append(message.value() or b"")
    consumer.close()
    assert all(value.startswith(b"new") for value in seen)
    delete(admin, name)


def test_deleted_topic_is_unknown_to_writers_and_readers(bootstrap: str, admin: AdminClient) -> None:
    name = unique_name("gone")
    make(bootstrap, admin, name)
    Confluent().produce(bootstrap, name, [Record(b"v")])
    delete(admin, name)
    with RawClient(bootstrap) as raw:
        assert raw.produce(name, 0, build_batch([b"v"])).error == 3
        assert raw.fetch(name, 0, 0).error == 3


AUTO_CREATE = {"auto.create.topics.enable": "true", "num.partitions": "3"}


def test_auto_creation(own_broker: StartBroker) -> None:
    """R-TOP-5: off by default, working when switched on, with num.partitions; each client by its own way."""
    server = own_broker(AUTO_CREATE)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    Confluent().produce(server.bootstrap, "made-by-confluent", [Record(b"v", key=b"k")])
    producer = KafkaProducer(bootstrap_servers=server.bootstrap)
    producer.send("made-by-kafka-python", b"v").get(TIMEOUT_S)
    producer.close()

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=server.bootstrap) as aio:
            await aio.send_and_wait("made-by-aiokafka", b"v")

    asyncio.run(send())
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    for name in ("made-by-confluent", "made-by-kafka-python", "made-by-aiokafka"):
        assert len(topics[name].partitions) == 3, name


def test_auto_creation_refuses_bad_names(own_broker: StartBroker) -> None:
    server = own_broker(AUTO_CREATE)
    metadata = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics("bad/name", timeout=TIMEOUT_S)
    error = metadata.topics["bad/name"].error
    assert error is not None
    assert error.code() == ck.KafkaError.TOPIC_EXCEPTION


def test_who_may_not_create_does_not(own_broker: StartBroker) -> None:
    """KIP-361: a client's own allow.auto.create.topics=false wins over the broker's switch."""
    server = own_broker(AUTO_CREATE)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    with RawClient(server.bootstrap) as raw:
        for _ in range(3):
            assert raw.topic_error("untouched", allow_auto_creation=False) == 3
        assert "untouched" not in admin.list_topics(timeout=TIMEOUT_S).topics
        eventually(lambda: raw.topic_error("untouched", allow_auto_creation=True) == 0)

"""R-PRO-2, R-PRO-3: clients live through broken connections and a broker that goes away and comes back.

A proxy of ours cuts connections in the middle of requests and answers; the broker advertises the proxy's address,
so that a client cannot go round it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from kafka import KafkaProducer

from headrace.testing.process import ServerProcess
from headrace.testing.raw_client import RawClient
from headrace.testing.tcp_proxy import CuttingProxy
from tests.compat.clients import Confluent, Record, confluent_consumer, poll_confluent
from tests.compat.confluent_admin import AdminClient, NewTopic
from tests.compat.conftest import wait_until_served
from tests.conftest import StartBroker

PARTITIONS = 3
TIMEOUT_S = 120.0
TOPIC = "through-the-proxy"


@dataclass(frozen=True, slots=True)
class Cut:
    """A broker behind a proxy that cuts."""

    server: ServerProcess
    proxy: CuttingProxy


def make_topic(server: ServerProcess, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    wait_until_served(server.bootstrap, name, partitions)


@pytest.fixture
def cut(own_broker: StartBroker) -> Iterator[Cut]:
    with CuttingProxy(seed=11) as proxy:
        server = own_broker({"advertised.listeners": f"PLAINTEXT://{proxy.address}"})
        proxy.point_at(server.bootstrap)
        proxy.cutting = False
        make_topic(server, TOPIC, PARTITIONS)
        proxy.cutting = True
        yield Cut(server, proxy)


def everything(server: ServerProcess) -> list[list[int]]:
    """The numbers in each partition, read without the proxy's cuts (the caller has stopped them)."""
    found = []
    for partition in range(PARTITIONS):
        with RawClient(server.bootstrap) as raw:
            end = raw.fetch(TOPIC, partition, 0).high_watermark
        read = Confluent().read(server.bootstrap, TOPIC, partition, end) if end else []
        found.append([int(one.value or b"-1") for one in read])
    return found


def produce_confluent(bootstrap: str, count: int, **settings: int | bool | str) -> None:
    """Numbers 0..count-1, number n to partition n % PARTITIONS."""
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.timeout.ms": int(TIMEOUT_S * 1000),
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "batch.num.messages": 20,
            "linger.ms": 1,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    errors: list[ck.KafkaError] = []
    for number in range(count):
        value = b"%d" % number
        producer.produce(
            TOPIC, value, partition=number % PARTITIONS, on_delivery=lambda e, _: errors.append(e) if e else None
        )
        producer.poll(0)
        if number % 500 == 0:
            time.sleep(0.01)
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []


def wanted(count: int) -> list[list[int]]:
    return [list(range(partition, count, PARTITIONS)) for partition in range(PARTITIONS)]


@pytest.mark.parametrize("in_flight", [1, 5])
def test_idempotent_producer_through_resets(cut: Cut, in_flight: int) -> None:
    """R-PRO-3: no loss, no duplicate, no reordering, although requests and answers are lost in the middle."""
    count = 9_000
    produce_confluent(cut.proxy.address, count, enable_idempotence=True, max_in_flight=in_flight)
    cut.proxy.cutting = False
    assert cut.proxy.cuts >= 5
    assert everything(cut.server) == wanted(count)


def test_plain_producer_through_resets_loses_nothing(cut: Cut) -> None:
    """R-PRO-1: without idempotence a retry may double a record, but never lose one."""
    count = 6_000
    produce_confluent(cut.proxy.address, count, acks="all", retries=1_000, max_in_flight=1)
    cut.proxy.cutting = False
    assert cut.proxy.cuts >= 3
    for found, full in zip(everything(cut.server), wanted(count), strict=True):
        assert sorted(set(found)) == full
        firsts = list(dict.fromkeys(found))
        assert firsts == full


def test_kafka_python_idempotent_through_resets(cut: Cut) -> None:
    """R-PRO-3."""
    count = 3_000
    producer = KafkaProducer(
        bootstrap_servers=cut.proxy.address,
        enable_idempotence=True,
        acks="all",
        batch_size=1_000,
        linger_ms=1,
        retry_backoff_ms=10,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=50,
    )
    sent = []
    for number in range(count):
        sent.append(producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS))
        if number % 200 == 0:
            time.sleep(0.01)
    for future in sent:
        future.get(TIMEOUT_S)
    producer.close()
    cut.proxy.cutting = False
    assert cut.proxy.cuts >= 3
    assert everything(cut.server) == wanted(count)


def test_consumer_through_resets(cut: Cut) -> None:
    """R-CON-1: a reader whose connection keeps breaking still reads every record once, in order."""
    count = 6_000
    cut.proxy.cutting = False
    produce_confluent(cut.server.bootstrap, count, enable_idempotence=True)
    # One answer must fit, or nothing would ever come through.
    cut.proxy.limits = (10_000, 80_000)
    cut.proxy.cutting = True
    consumer = confluent_consumer(
        cut.proxy.address, reconnect_backoff_ms=5, reconnect_backoff_max_ms=50, fetch_message_max_bytes=8_000
    )
    consumer.assign([ck.TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    read: list[list[int]] = [[] for _ in range(PARTITIONS)]
    deadline = time.monotonic() + TIMEOUT_S
    while sum(map(len, read)) < count:
        assert time.monotonic() < deadline
        for message in consumer.consume(500, timeout=0.2):
            partition = message.partition()
            if message.error() is None and partition is not None:
                read[partition].append(int(message.value() or b"-1"))
    consumer.close()
    assert read == wanted(count)


def test_broker_restart_in_the_middle(own_broker: StartBroker) -> None:
    """R-LOG-7, R-PRO-3: a clean restart while an idempotent producer sends and a consumer reads."""
    server = own_broker()
    make_topic(server, TOPIC, PARTITIONS)
    count = 6_000
    restarted = threading.Event()
    failures: list[BaseException] = []

    def produce() -> None:
        try:
            produce_slowly(server.bootstrap, count, restarted)
        except BaseException as failure:
            failures.append(failure)
            raise

    writer = threading.Thread(target=produce)
    writer.start()
    consumer = confluent_consumer(server.bootstrap, reconnect_backoff_max_ms=100)
    consumer.assign([ck.TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    early = poll_confluent(consumer, 300)
    server.restart()
    restarted.set()
    late = poll_confluent(consumer, count - 300, timeout_s=TIMEOUT_S)
    writer.join(TIMEOUT_S)
    consumer.close()
    assert failures == []
    read: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for message in early + late:
        read[message.partition() or 0].append(int(message.value() or b"-1"))
    assert read == wanted(count)


def produce_slowly(bootstrap: str, count: int, restarted: threading.Event) -> None:
    """A third before the restart, a third while it happens, the rest after."""
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": int(TIMEOUT_S * 1000),
            "reconnect.backoff.max.ms": 100,
        }
    )
    errors: list[ck.KafkaError] = []
    for number in range(count):
        if number == 2 * count // 3:
            restarted.wait(TIMEOUT_S)
        producer.produce(
            TOPIC,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
        producer.poll(0)
        if number % 20 == 0 and not restarted.is_set():
            time.sleep(0.005)
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []


def test_aiokafka_reconnects(own_broker: StartBroker) -> None:
    """R-PRO-2: the same producer object goes on after the broker came back."""
    server = own_broker()
    make_topic(server, TOPIC, 1)

    async def run() -> list[int]:
        offsets = []
        producer = AIOKafkaProducer(
            bootstrap_servers=server.bootstrap, enable_idempotence=True, retry_backoff_ms=50
        )
        async with producer:
            offsets.append((await producer.send_and_wait(TOPIC, b"before")).offset)
            await asyncio.to_thread(server.terminate)
            pending = asyncio.create_task(send_until_done(producer))
            await asyncio.sleep(0.2)
            server.start()
            async with asyncio.timeout(TIMEOUT_S):
                offsets.append(await pending)
        return offsets

    assert asyncio.run(run()) == [0, 1]
    assert [one.value for one in Confluent().read(server.bootstrap, TOPIC, 0, 2)] == [b"before", b"after"]


async def send_until_done(producer: AIOKafkaProducer) -> int:
    while True:
        try:
            return (await producer.send_and_wait(TOPIC, b"after")).offset
        except AioError:
            await asyncio.sleep(0.1)


def test_data_survives_a_restart(own_broker: StartBroker) -> None:
    """R-LOG-7: records, topics, configs and offsets are the same after a clean restart."""
    server = own_broker()
    make_topic(server, TOPIC, 2)
    records = [Record(b"%d" % number, partition=number % 2) for number in range(100)]
    Confluent().produce(server.bootstrap, TOPIC, records)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    deletion = admin.delete_records([ck.TopicPartition(TOPIC, 0, 10)])
    for future in deletion.values():
        future.result(60)
    server.restart()
    read = Confluent().read(server.bootstrap, TOPIC, 1, 50)
    assert [one.value for one in read] == [b"%d" % number for number in range(1, 100, 2)]
    with RawClient(server.bootstrap) as raw:
        assert raw.fetch(TOPIC, 0, 10).log_start_offset == 10
        assert raw.fetch(TOPIC, 0, 0).error == 1
    assert Confluent().produce(server.bootstrap, TOPIC, [Record(b"next", partition=0)]) == [(0, 50)]

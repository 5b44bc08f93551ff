"""Quotas as clients meet them: librdkafka is told to wait, and is held to its rate whether it does or not."""

from __future__ import annotations

import asyncio
import time

from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientSettings
from headrace.client.quotas import alter_quotas, describe_quotas
from headrace.env.real import real_env
from headrace.security.quota import CLIENT_ID, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaEntity, QuotaFilter
from tests.compat.conftest import MakeTopic, unique_name

TIMEOUT_S = 60.0
RATE = 200_000
VALUE = bytes(50_000)
COUNT = 16


def set_quotas(bootstrap: str, client_id: str, values: dict[str, float | None]) -> None:
    entity: QuotaEntity = ((CLIENT_ID, client_id),)

    async def change() -> None:
        async with Cluster(real_env(), parse_bootstrap(bootstrap), ClientSettings()) as cluster:
            assert await alter_quotas(cluster, entity, values) is None
            wanted = {name: value for name, value in values.items() if value is not None}
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    rows = await describe_quotas(cluster, [QuotaFilter(CLIENT_ID, False, client_id)], strict=True)
                    if {name: value for row in rows for name, value in row.values.items()} == wanted:
                        return
                    await asyncio.sleep(0.05)

    asyncio.run(change())


def test_librdkafka_is_held_to_its_rate(bootstrap: str, broker_kind: str, make_topic: MakeTopic) -> None:
    """What is written is more than a broker of either kind lets a client save up: Kafka ten seconds' worth."""
    topic, client_id = make_topic(1), unique_name("greedy")
    set_quotas(bootstrap, client_id, {PRODUCER_BYTE_RATE: RATE, CONSUMER_BYTE_RATE: RATE})
    told: list[float] = []

    def throttled(event: ThrottleEvent) -> None:
        told.append(event.throttle_time)

    count = COUNT if broker_kind == "headrace" else 4 * COUNT
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "throttle_cb": throttled,
            "linger.ms": 0,
            "batch.num.messages": 1,
        }
    )
    began = time.monotonic()
    for _ in range(count):
        producer.produce(topic, VALUE)
    assert producer.flush(TIMEOUT_S) == 0
    producer.poll(0)
    took = time.monotonic() - began
    assert told
    assert max(told) > 0
    if broker_kind == "headrace":
        assert took >= (count * len(VALUE)) / RATE * 0.95 - 2.0, "faster than it may"
    assert read_all(bootstrap, topic, client_id) == count
    set_quotas(bootstrap, client_id, {PRODUCER_BYTE_RATE: None, CONSUMER_BYTE_RATE: None})


def read_all(bootstrap: str, topic: str, client_id: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "client.id": client_id, "group.id": unique_name("g")})
    consumer.assign([TopicPartition(topic, 0, 0)])
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)[1]
    found = 0
    while found < end:
        record = consumer.poll(TIMEOUT_S)
        assert record is not None
        assert record.error() is None
        found += 1
    consumer.close()
    return found

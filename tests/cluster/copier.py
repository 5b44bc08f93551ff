"""Consume, transform, produce: copies a topic in transactions, until it is killed or anything goes wrong.

    python copier.py confluent|consumer|aiokafka BOOTSTRAP SOURCE TARGET NUMBER COUNT

This is copier NUMBER of COUNT. Each record becomes two, in two partitions of the target, so that a transaction
that is seen in part would show. With confluent-kafka the copiers are members of a group (KIP-447); `consumer` is
the same with the newer protocol (KIP-848), where member epochs fence them. With aiokafka, which does not tell the
broker its generation, each has partitions of its own. Whoever started it starts it again.
"""

from __future__ import annotations

import asyncio
import sys

import aiokafka
import confluent_kafka as ck

BATCH = 20
PARTITIONS = 4
TIMEOUT_S = 60.0
TRANSACTION_TIMEOUT_MS = 60_000


def outputs(partition: int, value: bytes) -> list[tuple[int, bytes]]:
    """(partition, value) of the two that come of a record."""
    return [(partition, b"a " + value), ((partition + 1) % PARTITIONS, b"b " + value)]


def copy_with_confluent(bootstrap: str, source: str, target: str, number: int, protocol: str) -> None:
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"copier-{target}-{number}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": target,
            "group.protocol": protocol,
            "group.instance.id": str(number),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([source])
    while True:
        messages = consumer.consume(BATCH, timeout=0.5)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            error = message.error()
            if error is not None:
                raise ck.KafkaException(error)
            for partition, value in outputs(message.partition() or 0, message.value() or b""):
                producer.produce(target, value, partition=partition)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)


async def copy_with_aiokafka(bootstrap: str, source: str, target: str, number: int, count: int) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=f"copier-{target}-{number}",
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    await producer.start()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=target,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition(source, index) for index in range(number, PARTITIONS, count)])
    while True:
        found = await consumer.getmany(timeout_ms=500, max_records=BATCH)
        if not found:
            continue
        async with producer.transaction():
            for place, messages in found.items():
                for message in messages:
                    for partition, value in outputs(place.partition, message.value or b""):
                        await producer.send(target, value, partition=partition)
            positions = {place: messages[-1].offset + 1 for place, messages in found.items()}
            await producer.send_offsets_to_transaction(positions, target)


def main() -> None:
    client, bootstrap, source, target, number, count = sys.argv[1:]
    if client in ("confluent", "consumer"):
        protocol = "classic" if client == "confluent" else "consumer"
        copy_with_confluent(bootstrap, source, target, int(number), protocol)
    else:
        asyncio.run(copy_with_aiokafka(bootstrap, source, target, int(number), int(count)))


if __name__ == "__main__":
    main()

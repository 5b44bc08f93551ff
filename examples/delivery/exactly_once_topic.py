"""Exactly once from topic to topic: neither lost nor doubled, whenever anybody dies (R-CON-5).

    python examples/delivery/exactly_once_topic.py 127.0.0.1:9092 orders invoices

`invoices` must exist and have as many partitions as `orders`: a result goes to the partition of its record.

What comes of a batch of records, and the position after them, are one transaction. Who reads `invoices` with
`isolation.level=read_committed` sees both or neither. After a crash `init_transactions` ends what the dead process
had begun, in its name (`transactional.id`), before the next one asks where to go on: at the position that was
committed with the last results. A process that was taken for dead and still writes is fenced: its commit fails.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer

BATCH = 50
TIMEOUT_S = 30.0


def open_producer(bootstrap: str, topic: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"exactly-once-{topic}-1"})
    producer.init_transactions(TIMEOUT_S)
    return producer


def open_consumer(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"exactly-once-topic-{topic}",
            # The same member after a restart: its partitions wait for it, and nobody waits for a session to end.
            "group.instance.id": "1",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    return consumer


def write(producer: Producer, target: str, message: Message) -> None:
    """What comes of one record: here its place and its value, in the partition of the same number."""
    place = f"{message.partition()} {message.offset()} ".encode()
    producer.produce(target, place + (message.value() or b""), partition=message.partition() or 0)


def write_positions(producer: Producer, consumer: Consumer) -> None:
    """The position after what was read becomes a part of the transaction too."""
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)


def commit(producer: Producer) -> None:
    producer.commit_transaction(TIMEOUT_S)


def main() -> None:
    bootstrap, topic, target = sys.argv[1:]
    producer = open_producer(bootstrap, topic)
    consumer = open_consumer(bootstrap, topic)
    while True:
        messages = consumer.consume(BATCH, timeout=0.5)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            write(producer, target, message)
        write_positions(producer, consumer)
        commit(producer)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass

"""At most once: a record may be lost, and is never handled twice (R-CON-5).

    python examples/delivery/at_most_once.py 127.0.0.1:9092 orders results.txt

The position is committed *before* the records are handled. Who dies in between has said that they are done, and
goes on after them. Right for what is worthless twice or late: a mail that must not be sent again, a reading of a
sensor.
"""

from __future__ import annotations

import sys
from typing import TextIO

from confluent_kafka import Consumer, KafkaException, Message

BATCH = 50
"""What one crash can lose."""


def open_consumer(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"at-most-once-{topic}",
            # The same member after a restart: its partitions wait for it, and nobody waits for a session to end.
            "group.instance.id": "1",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    return consumer


def commit(consumer: Consumer, last: Message) -> None:
    """Waits for the answer: a commit that is under way promises nothing."""
    consumer.commit(message=last, asynchronous=False)


def handle(message: Message, results: TextIO) -> None:
    results.write(f"{message.partition()} {message.offset()} {(message.value() or b'').decode()}\n")
    results.flush()


def main() -> None:
    bootstrap, topic, path = sys.argv[1:]
    consumer = open_consumer(bootstrap, topic)
    with open(path, "a") as results:
        while True:
            for batch in by_partition(consumer.consume(BATCH, timeout=0.5)):
                commit(consumer, batch[-1])
                for message in batch:
                    handle(message, results)


def by_partition(messages: list[Message]) -> list[list[Message]]:
    """In the order of each partition; the position of a partition is that of its last record."""
    batches: dict[int | None, list[Message]] = {}
    for message in messages:
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        batches.setdefault(message.partition(), []).append(message)
    return list(batches.values())


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass

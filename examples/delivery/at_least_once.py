"""At least once: a record may be handled twice, and is never lost (R-CON-5).

    python examples/delivery/at_least_once.py 127.0.0.1:9092 orders results.txt

The position is committed *after* the records are handled. Who dies in between has done the work and not said so,
and does it again. The usual choice, where doing a thing twice is the same as doing it once, or can be made so.
"""

from __future__ import annotations

import sys
from typing import TextIO

from confluent_kafka import Consumer, KafkaException, Message

BATCH = 50
"""What one crash can double."""


def open_consumer(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"at-least-once-{topic}",
            # The same member after a restart: its partitions wait for it, and nobody waits for a session to end.
            "group.instance.id": "1",
            # The default commits by the clock, also what was polled and not handled yet.
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    return consumer


def handle(message: Message, results: TextIO) -> None:
    results.write(f"{message.partition()} {message.offset()} {(message.value() or b'').decode()}\n")
    results.flush()


def commit(consumer: Consumer) -> None:
    """The positions of all partitions, as far as they were polled, which is as far as they were handled."""
    consumer.commit(asynchronous=False)


def main() -> None:
    bootstrap, topic, path = sys.argv[1:]
    consumer = open_consumer(bootstrap, topic)
    with open(path, "a") as results:
        while True:
            messages = consumer.consume(BATCH, timeout=0.5)
            for message in messages:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                handle(message, results)
            if messages:
                commit(consumer)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass

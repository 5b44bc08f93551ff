"""Exactly once into a database: neither lost nor doubled, whenever anybody dies (R-CON-5).

    python examples/delivery/exactly_once_sqlite.py 127.0.0.1:9092 orders results.db

Results and positions are in one database and change in one transaction, so that they can never disagree. The
broker keeps no position for this group; it only shares the partitions out. Who is given one reads its position in
the database and seeks there. A member that was taken for dead and still writes finds that the position has moved
on: it ends, and its transaction with it.
"""

from __future__ import annotations

import sqlite3
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

BATCH = 50
TABLES = """
CREATE TABLE IF NOT EXISTS results (topic TEXT, part INTEGER, record_offset INTEGER, value TEXT);
CREATE TABLE IF NOT EXISTS positions (topic TEXT, part INTEGER, next_offset INTEGER, PRIMARY KEY (topic, part));
"""


class Overtaken(Exception):
    """Another member goes on where this one was."""


def open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.executescript(TABLES)
    return database


def open_consumer(bootstrap: str, topic: str, database: sqlite3.Connection) -> Consumer:
    def seek(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = position(database, partition.topic, partition.partition)
        consumer.assign(partitions)

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"exactly-once-{topic}",
            # The same member after a restart: its partitions wait for it, and nobody waits for a session to end.
            "group.instance.id": "1",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic], on_assign=seek)
    return consumer


def position(database: sqlite3.Connection, topic: str, partition: int) -> int:
    found = database.execute(
        "SELECT next_offset FROM positions WHERE topic = ? AND part = ?", (topic, partition)
    ).fetchone()
    return OFFSET_BEGINNING if found is None else int(found[0])


def store(database: sqlite3.Connection, message: Message) -> None:
    """One record's part of the transaction: what comes of it, and the position after it."""
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    value = (message.value() or b"").decode()
    database.execute("INSERT INTO results VALUES (?, ?, ?, ?)", (topic, partition, offset, value))
    move_position(database, topic, partition, offset)


def move_position(database: sqlite3.Connection, topic: str, partition: int, offset: int) -> None:
    before = position(database, topic, partition)
    if before > offset:
        raise Overtaken(f"{topic} [{partition}] is at {before} already")
    database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", (topic, partition, offset + 1))


def commit(database: sqlite3.Connection) -> None:
    database.commit()


def main() -> None:
    bootstrap, topic, path = sys.argv[1:]
    database = open_database(path)
    consumer = open_consumer(bootstrap, topic, database)
    while True:
        messages = consumer.consume(BATCH, timeout=0.5)
        if not messages:
            continue
        # Takes the lock at once, so that positions cannot move between reading and writing them.
        database.execute("BEGIN IMMEDIATE")
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            store(database, message)
        commit(database)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass

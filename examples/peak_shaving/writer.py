"""Peak shaving: a topic takes the burst, and a slow database gets its rows at the pace it can take.

    python examples/peak_shaving/writer.py 127.0.0.1:9092 orders shop.db --rows-per-second 200

At most so many rows go into one transaction, and one transaction is begun a second at most. Rows and offsets are
stored together, so that a restart neither loses nor doubles a row. Offsets are committed to the group as well,
only so that `headrace group describe peak-shaving-orders` shows how far the database is behind.
"""

from __future__ import annotations

import argparse
import sqlite3
import time
from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

IDLE_S = 5.0
TABLES = """
CREATE TABLE IF NOT EXISTS orders (part INTEGER, at_offset INTEGER, value TEXT, PRIMARY KEY (part, at_offset));
CREATE TABLE IF NOT EXISTS positions (part INTEGER PRIMARY KEY, next_offset INTEGER);
CREATE TABLE IF NOT EXISTS transactions (rows_written INTEGER);
"""


class Overtaken(Exception):
    """Another writer goes on where this one was: it was taken for dead."""


def open_consumer(bootstrap: str, topic: str, database: sqlite3.Connection) -> Consumer:
    def seek(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            found = database.execute(
                "SELECT next_offset FROM positions WHERE part = ?", (one.partition,)
            ).fetchone()
            one.offset = OFFSET_BEGINNING if found is None else int(found[0])
        consumer.assign(partitions)

    settings = {"group.id": f"peak-shaving-{topic}", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    # The same member after a restart: its partitions wait for it, and nobody waits for a session to end.
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.instance.id": "1", **settings})
    consumer.subscribe([topic], on_assign=seek)
    return consumer


def store(database: sqlite3.Connection, messages: Iterable[Message]) -> int:
    """All of them and their offsets, in one transaction."""
    count = 0
    with database:
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            value = (message.value() or b"").decode()
            try:
                database.execute("INSERT INTO orders VALUES (?, ?, ?)", (partition, offset, value))
            except sqlite3.IntegrityError:
                raise Overtaken(f"partition {partition} is beyond {offset} already") from None
            database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (partition, offset + 1))
            count += 1
        database.execute("INSERT INTO transactions VALUES (?)", (count,))
    return count


def run(bootstrap: str, topic: str, path: str, rows_per_second: int, *, until_idle: bool = False) -> int:
    """How many rows were written; ends only with `until_idle`."""
    database = sqlite3.connect(path)
    database.executescript(TABLES)
    consumer = open_consumer(bootstrap, topic, database)
    written, last = 0, time.monotonic()
    try:
        while not until_idle or not written or time.monotonic() - last < IDLE_S:
            began = time.monotonic()
            found = consumer.consume(rows_per_second, timeout=1.0)
            for error in filter(None, (one.error() for one in found)):
                raise KafkaException(error)
            if found:
                written += store(database, found)
                consumer.commit(asynchronous=True)
                last = time.monotonic()
                time.sleep(max(0.0, began + 1.0 - last))
        return written
    finally:
        consumer.close()
        database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Writes a topic to a slow database, at its pace.")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("database")
    parser.add_argument("--rows-per-second", type=int, default=200)
    given = parser.parse_args()
    run(given.bootstrap, given.topic, given.database, given.rows_per_second)

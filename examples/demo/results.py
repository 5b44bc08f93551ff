"""What came out of the pipeline, read back with a stock client and with Arrow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

READ_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Results:
    errors: int = 0
    archived: int = 0
    dead: Counter[str] = field(default_factory=Counter)
    """By the reason that their header gives."""
    minutes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Start of the minute -> events and errors, over all services."""

    @property
    def counted(self) -> int:
        return sum(minute["events"] for minute in self.minutes.values())


def read_results(bootstrap: str, archive: Path) -> Results:
    results = Results(errors=sum(1 for _ in read_topic(bootstrap, "logs.errors")))
    for message in read_topic(bootstrap, "logs.dead"):
        results.dead[reason_of(message)] += 1
    results.minutes = by_minute(read_topic(bootstrap, "logs.per-minute"))
    if archive.is_dir():
        results.archived = pyarrow.dataset.dataset(archive, format="parquet", partitioning="hive").count_rows()
    return results


def reason_of(message: Message) -> str:
    headers = message.headers()
    found = dict(headers if isinstance(headers, list) else []).get("headrace.error.reason")
    return found.decode() if isinstance(found, bytes) else "?"


def by_minute(messages: Iterator[Message]) -> dict[str, dict[str, Any]]:
    """A count that has grown was sent again: the last of every minute and service holds."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for message in messages:
        row = json.loads(message.value() or b"{}")
        last[row["minute"], row["service"]] = row
    minutes: dict[str, dict[str, Any]] = {}
    for (minute, _), row in sorted(last.items()):
        whole = minutes.setdefault(minute, {"events": 0, "errors": 0})
        whole["events"] += row["events"]
        whole["errors"] += row["errors"]
    return minutes


def read_topic(bootstrap: str, topic: str) -> Iterator[Message]:
    """Everything that is in it now."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "demo-results", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    try:
        found = consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic]
        for partition in found.partitions:
            low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_TIMEOUT_S)
            consumer.assign([TopicPartition(topic, partition, low)])
            while True:  # the last offsets may be markers of transactions, which no consumer gets
                message = consumer.poll(READ_TIMEOUT_S)
                if message is None:
                    return
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    break
                if error is not None:
                    return
                yield message
    finally:
        consumer.close()

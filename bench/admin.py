"""Topics made and removed through an ordinary admin client (librdkafka's), on either system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.asking import wait_until_served

TIMEOUT_S = 120
TOPICS_PER_REQUEST = 4


def admin_client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topics(bootstrap: str, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Creates topics with their numbers of partitions, and returns when every partition is served."""
    client = admin_client(bootstrap)
    names = list(topics)
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        new = [
            NewTopic(name, num_partitions=topics[name], replication_factor=1, config=dict(config or {}))
            for name in names[start : start + TOPICS_PER_REQUEST]
        ]
        for future in client.create_topics(new, request_timeout=TIMEOUT_S).values():
            future.result()
    wait_until_served(int(bootstrap.rpartition(":")[2]), topics)


def delete_topics(bootstrap: str, names: Iterable[str]) -> None:
    wanted = list(names)
    if not wanted:
        return
    client = admin_client(bootstrap)
    for future in client.delete_topics(wanted, request_timeout=TIMEOUT_S).values():
        future.result()


def end_offset(bootstrap: str, topic: str, partition: int) -> int:
    """Where the next record of the partition would go."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-offsets", "log_level": 0})
    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    finally:
        consumer.close()
    if found is None:
        raise KafkaException(f"no offsets of {topic}-{partition}")
    return int(found[1])

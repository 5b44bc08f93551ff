"""Topics made and removed through an ordinary admin client (librdkafka's), on either system."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.asking import wait_until_served

TIMEOUT_S = 120
LEADER_POLL_S = 0.02
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
    wait_for_leaders(client, topics)
    wait_until_served(int(bootstrap.rpartition(":")[2]), topics)


def wait_for_leaders(client: AdminClient, topics: Mapping[str, int]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        found = client.list_topics(timeout=TIMEOUT_S).topics
        if all(_has_leaders(found.get(name), count) for name, count in topics.items()):
            return
        time.sleep(LEADER_POLL_S)
    raise TimeoutError(f"{len(topics)} topics have no leaders after {TIMEOUT_S} s")


def _has_leaders(topic: object, count: int) -> bool:
    partitions = getattr(topic, "partitions", {})
    return len(partitions) == count and all(partition.leader >= 0 for partition in partitions.values())


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

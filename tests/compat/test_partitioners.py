"""R-TOP-2: where records go: by key as the Java client does, without a key, to an explicit partition, by own rule.

The golden numbers were computed with the Java client itself (`Utils.murmur2` of kafka-clients 4.1.1 on the key's
UTF-8 bytes, made positive, modulo the number of partitions).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer
from kafka.cluster import ClusterMetadata

from tests.compat.clients import Client, Record, Settings
from tests.compat.conftest import MakeTopic

GOLDEN: dict[str, tuple[int, int]] = {
    # key: (partition of 7, partition of 12)
    "a": (5, 4),
    "ab": (0, 2),
    "abc": (4, 3),
    "abcd": (5, 8),
    "kafka": (3, 4),
    "user-1": (3, 8),
    "user-42": (1, 4),
    "order:99": (3, 7),
    "ключ": (4, 8),
    "日本語": (6, 10),
    "🙂": (4, 3),
    "0": (3, 8),
    "the quick brown fox jumps over the lazy dog": (3, 4),
}
BINARY_KEY = bytes([0, 255, 128, 127, 1])
BINARY_GOLDEN = (6, 0)


@pytest.mark.parametrize(("partitions", "column"), [(7, 0), (12, 1)])
def test_keys_go_where_java_sends_them(
    bootstrap: str, make_topic: MakeTopic, client: Client, partitions: int, column: int
) -> None:
    """R-TOP-2."""
    name = make_topic(partitions)
    keys = [*(key.encode() for key in GOLDEN), BINARY_KEY]
    placed = client.produce(bootstrap, name, [Record(b"v", key=key) for key in keys])
    wanted = [*(row[column] for row in GOLDEN.values()), BINARY_GOLDEN[column]]
    assert [partition for partition, _ in placed] == wanted


def test_explicit_partition(bootstrap: str, make_topic: MakeTopic, client: Client) -> None:
    """R-TOP-2: a partition that was named wins over the key."""
    name = make_topic(5)
    records = [Record(b"%d" % number, key=b"same", partition=number % 5) for number in range(25)]
    placed = client.produce(bootstrap, name, records)
    assert [partition for partition, _ in placed] == [number % 5 for number in range(25)]
    for partition in range(5):
        read = client.read(bootstrap, name, partition, 5)
        assert [one.value for one in read] == [b"%d" % number for number in range(partition, 25, 5)]


def test_without_key_all_partitions_are_used(bootstrap: str, make_topic: MakeTopic, client: Client) -> None:
    """R-TOP-2: sticky batches spread over the partitions in the long run."""
    name = make_topic(4)
    records = [Record(b"x" * 100) for _ in range(800)]
    placed = client.produce(bootstrap, name, records, Settings(batch_bytes=1_000, linger_ms=0))
    assert set(Counter(partition for partition, _ in placed)) == {0, 1, 2, 3}


def test_confluent_sticky_keeps_a_batch_together(bootstrap: str, make_topic: MakeTopic) -> None:
    """R-TOP-2: with a sticky time, records without a key that are sent together go to one partition."""
    name = make_topic(8)
    where: list[int | None] = []
    settings = {"bootstrap.servers": bootstrap, "sticky.partitioning.linger.ms": 2_000, "linger.ms": 50}
    producer = ck.Producer(settings)
    producer.produce(name, b"so that the topic is known before the records that count")
    assert producer.flush(60) == 0
    for _ in range(50):
        producer.produce(name, b"x", on_delivery=lambda _, message: where.append(message.partition()))
    assert producer.flush(60) == 0
    assert len(where) == 50
    assert len(set(where)) <= 2


def test_confluent_round_robin(bootstrap: str, make_topic: MakeTopic) -> None:
    """R-TOP-2: no sticky time: each record may go elsewhere."""
    name = make_topic(4)
    where: Counter[int | None] = Counter()
    producer = ck.Producer({"bootstrap.servers": bootstrap, "sticky.partitioning.linger.ms": 0})
    for _ in range(400):
        producer.produce(name, b"x", on_delivery=lambda _, message: where.update([message.partition()]))
    assert producer.flush(60) == 0
    assert set(where) == {0, 1, 2, 3}
    assert min(where.values()) > 40


def _last_partition(key: bytes | None, everything: Sequence[int], available: Sequence[int]) -> int:
    return max(everything)


class LastPartition:
    """The same for kafka-python 3, which wants an object."""

    def partition(self, topic: str, key: bytes | None, cluster: ClusterMetadata) -> int:
        return max(cluster.partitions_for_topic(topic) or {0})


def test_own_function(bootstrap: str, make_topic: MakeTopic) -> None:
    """R-TOP-2: a user's own partitioner."""
    name = make_topic(6)
    producer = KafkaProducer(bootstrap_servers=bootstrap, partitioner=LastPartition())
    assert producer.send(name, b"v", key=b"k").get(60).partition == 5
    producer.close()

    async def send() -> int:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, partitioner=_last_partition) as aio:
            return (await aio.send_and_wait(name, b"v", key=b"k")).partition

    assert asyncio.run(send()) == 5

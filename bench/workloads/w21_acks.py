"""W21: what `acks` costs in latency, and what it saves when brokers die (R-PERF-1)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.admin import TIMEOUT_S, admin_client, end_offset
from bench.clients import librdkafka
from bench.clusters import PATIENCE_S, BenchCluster, running_cluster
from bench.measure import Measurement, latencies
from bench.registry import workload
from bench.run import Run
from headrace.testing.process_cluster import wait_until

ACKS = ("0", "1", "2", "all")
TOGETHER_S, ALONE_S = 1.0, 0.8
"""How long all replicas follow, and how long some are stopped: less than a session, so that nobody is replaced."""
RECORDS_PER_S = 500


@workload("W21", "acks 0, 1, 2 and all: latency and loss", own_system=True, max_rounds=3)
def acks(run: Run) -> Iterator[Measurement]:
    """Three brokers, topics of one partition with three replicas. Latency: one record of 100 B at a time
    (librdkafka), each acknowledged before the next. Loss: acknowledged records that cannot be read afterwards, of
    a producer of 500 records a second without retries. Followers stop (SIGSTOP) for 0.8 s, and then (one dead) the
    leader is killed while both are stopped, or (two dead) the leader and the only follower that was not stopped.
    Kafka has no acks=2, and with two of three nodes dead no controller."""
    with running_cluster(run.system.name) as cluster:
        for value in ACKS:
            if value == "2" and run.system.name == "kafka":
                continue
            topic = f"acks-{value}"
            cluster.create_topic(topic, 1)
            done = librdkafka(
                "sync", cluster.bootstrap, topic, records=run.choose(5_000, 500), size=100, acks=value
            )
            figures = latencies(done.latency)
            # With two of its three nodes dead Kafka has no controller, and nobody is elected.
            for dead in (1,) if run.system.name == "kafka" else (1, 2):
                figures[f"lost_{dead}_dead"] = lost(cluster, f"{topic}-{dead}", value, dead)
            yield Measurement(f"acks={value}", figures, done.errors)


def lost(cluster: BenchCluster, topic: str, acks: str, dead: int) -> int:
    cluster.create_topic(topic, 1)
    leader = cluster.leaders(topic)[0]
    followers = [id for id in sorted(cluster.servers.brokers) if id != leader]
    victims, stopped = [leader, *followers[: dead - 1]], followers[dead - 1 :]
    acknowledged: set[bytes] = set()
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "retries": 0,
            "linger.ms": 0,
            "message.timeout.ms": 2_000,
            "log_level": 0,
        }
    )
    send(producer, topic, acknowledged, TOGETHER_S)
    pids = [cluster.servers.brokers[id].pid for id in stopped]
    tell(pids, signal.SIGSTOP)
    try:
        send(producer, topic, acknowledged, ALONE_S)
        for id in victims:
            cluster.kill(id)
    finally:
        tell(pids, signal.SIGCONT)
    producer.flush(10)
    wait_until(lambda: led_by(cluster, topic, stopped), f"{topic} is led again", PATIENCE_S)
    for id in victims:
        cluster.restart(id)
    wait_until(lambda: cluster.is_whole(topic, 1), f"all replicas of {topic} in sync", PATIENCE_S)
    return len(acknowledged - values(cluster.bootstrap, topic))


def led_by(cluster: BenchCluster, topic: str, brokers: Sequence[int]) -> bool:
    """As those brokers see it."""
    client = admin_client(cluster.servers.brokers[brokers[0]].bootstrap)
    found = client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    return bool(found) and found[0].leader in brokers


def tell(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def send(producer: Producer, topic: str, acknowledged: set[bytes], seconds: float) -> None:
    def told(error: object, message: object) -> None:
        if error is None:
            acknowledged.add(message.value())  # type: ignore[attr-defined]

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        producer.produce(topic, b"%d" % time.monotonic_ns(), partition=0, on_delivery=told)
        producer.poll(0)
        time.sleep(1 / RECORDS_PER_S)


def values(bootstrap: str, topic: str) -> set[bytes]:
    """Everything that the topic holds."""
    end, found = end_offset(bootstrap, topic, 0), set()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        position, deadline = 0, time.monotonic() + PATIENCE_S
        while position < end and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.5):
                if message.error() is None:
                    found.add(message.value() or b"")
                    position = (message.offset() or 0) + 1
    finally:
        consumer.close()
    return found

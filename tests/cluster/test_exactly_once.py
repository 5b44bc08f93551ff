"""R-PRO-4, R-CON-5: copiers and brokers are killed; what went in comes out, once, and no transaction in part.

Two copiers, in two processes, copy a topic in transactions, positions included, on three brokers. Copiers are
killed at any moment, and so is a broker. Afterwards a reader of committed records finds each record that was put
in, and the second one that was made of it in another partition, exactly once.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as ck
import pytest

from headrace.testing.process_cluster import ProcessCluster
from headrace.testing.zookeeper import ZooKeeperServer
from tests.cluster.copier import PARTITIONS
from tests.compat.clients import Confluent, Record
from tests.compat.confluent_admin import AdminClient, NewTopic

COPIER = str(Path(__file__).with_name("copier.py"))
COPIERS = 2
SOURCE, TARGET = "source", "target"
PATIENCE_SECONDS = 180.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Copying:
    def __init__(self, cluster: ProcessCluster, client: str, records: int) -> None:
        self.cluster = cluster
        self.records = records
        self._client = client
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._deadline = time.monotonic() + PATIENCE_SECONDS * max(records // 2_000, 1)
        self.restarts = 0

    def prepare(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=3) for name in (SOURCE, TARGET)]
        for future in admin.create_topics(topics).values():
            future.result(PATIENCE_SECONDS)
        values = [Record(b"%d" % number, partition=number % PARTITIONS) for number in range(self.records)]
        Confluent().produce(self.cluster.bootstrap, SOURCE, values)
        self._asking = ck.Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": TARGET})

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            self.keep_running()
            yield
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()
            self._asking.close()

    def keep_running(self) -> None:
        for number in range(COPIERS):
            process = self._processes.get(number)
            if process is None or process.poll() is not None:
                self.restarts += process is not None
                command = [sys.executable, COPIER, self._client, self.cluster.bootstrap, SOURCE, TARGET]
                self._processes[number] = subprocess.Popen(
                    [*command, str(number), str(COPIERS)], stderr=subprocess.DEVNULL
                )

    def kill_copier(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()
        self.keep_running()

    def copied(self) -> int:
        """By the positions that are committed; -1 if nobody can tell now."""
        try:
            places = [ck.TopicPartition(SOURCE, number) for number in range(PARTITIONS)]
            held = self._asking.committed(places, timeout=5)
        except ck.KafkaException:
            return -1
        return sum(max(place.offset, 0) for place in held)

    def until_copied(self, count: int) -> None:
        while self.copied() < count:
            assert time.monotonic() < self._deadline, f"{self.copied()} of {self.records} after all this time"
            self.keep_running()
            time.sleep(0.1)


def committed_values(bootstrap: str) -> list[Counter[bytes]]:
    """What is in each partition of the target for a reader of committed records, when all transactions ended."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    found: list[Counter[bytes]] = [Counter() for _ in range(PARTITIONS)]
    deadline = time.monotonic() + PATIENCE_SECONDS
    consumer.assign([ck.TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])
    while True:
        for message in consumer.consume(1000, timeout=0.5):
            assert message.error() is None, message.error()
            found[message.partition() or 0][message.value() or b""] += 1
        places = [ck.TopicPartition(TARGET, number) for number in range(PARTITIONS)]
        reached = [place.offset for place in consumer.position(places)]
        # The log's end for a reader of everything: nothing may stay open.
        if reached == ends(bootstrap):
            break
        assert time.monotonic() < deadline, f"positions {reached}, ends {ends(bootstrap)}: a transaction hangs"
    consumer.close()
    return found


def ends(bootstrap: str) -> list[int]:
    """Of the target's partitions; none if the client cannot tell now, while a broker comes back."""
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        return [
            consumer.get_watermark_offsets(ck.TopicPartition(TARGET, number), timeout=30)[1]
            for number in range(PARTITIONS)
        ]
    except ck.KafkaException:
        return []
    finally:
        consumer.close()


def check(copying: Copying) -> None:
    found = committed_values(copying.cluster.bootstrap)
    expected: list[Counter[bytes]] = [Counter() for _ in range(PARTITIONS)]
    for number in range(copying.records):
        expected[number % PARTITIONS][b"a %d" % number] += 1
        expected[(number + 1) % PARTITIONS][b"b %d" % number] += 1
    lost = sum((want - have).total() for want, have in zip(expected, found, strict=True))
    doubled = sum((have - want).total() for want, have in zip(expected, found, strict=True))
    assert (lost, doubled) == (0, 0)


def copy(
    client: str,
    records: int,
    disturb: Callable[[Copying, random.Random], None],
    zookeeper: str | None = None,
) -> None:
    with ProcessCluster(3, SETTINGS, zookeeper) as cluster:
        copying = Copying(cluster, client, records)
        copying.prepare()
        with copying.running():
            disturb(copying, random.Random(records))
            copying.until_copied(records)
        check(copying)
        assert copying.restarts


def copiers_and_a_broker_die(copying: Copying, rng: random.Random) -> None:
    for share in (0.1, 0.25, 0.4):
        copying.until_copied(int(copying.records * share))
        time.sleep(rng.random() / 10)  # at any moment of a transaction
        copying.kill_copier(rng.randrange(COPIERS))
    copying.until_copied(copying.records // 2)
    broker = copying.cluster.brokers[1]
    broker.kill()
    copying.until_copied(copying.records * 6 // 10)
    copying.kill_copier(rng.randrange(COPIERS))
    broker.launch()


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_what_goes_in_comes_out_once(client: str) -> None:
    copy(client, 1_200, copiers_and_a_broker_die)


def everything_dies(copying: Copying, rng: random.Random) -> None:
    for share in range(5, 100, 5):
        copying.until_copied(copying.records * share // 100)
        copying.kill_copier(rng.randrange(COPIERS))
        if share % 20 == 0:
            broker = rng.choice(list(copying.cluster.brokers.values()))
            broker.kill()
            copying.until_copied(copying.records * (share + 1) // 100)
            broker.start()


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_a_hundred_thousand_records(client: str) -> None:
    copy(client, 100_000, everything_dies)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("client", ["confluent", "consumer", "aiokafka"])
def test_coordinators_on_zookeeper(client: str) -> None:
    with ZooKeeperServer() as server:
        copy(client, 20_000, everything_dies, f"{server.connect}/exactly-once")


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_positions_of_the_newer_group_protocol() -> None:
    copy("consumer", 5_000, copiers_and_a_broker_die)

"""R-LOG-7: kill -9 under load, again and again: nothing acknowledged is lost, doubled or out of order.

A producer writes numbers to each partition with acks=all. The broker is killed at a random moment and started
again on the same data, twenty times. After every start a reader compares what is there with what was acknowledged:

    acked-missing 0, duplicates 0 (with idempotence), order kept, one value per offset over all lives.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import confluent_kafka as ck
import pytest

from headrace.testing.process import BrokerProcess
from headrace.testing.raw_client import BatchShape, RawClient, build_batch
from tests.compat.clients import Confluent, confluent_consumer
from tests.compat.confluent_admin import AdminClient, NewTopic

pytestmark = [pytest.mark.headrace_only, pytest.mark.timeout(600)]

PARTITIONS = 3
KILLS = 20
TOPIC = "crash"
TIMEOUT_S = 60.0
SMALL_SEGMENTS = {"segment.bytes": "1048576", "segment.index.bytes": "4096", "index.interval.bytes": "512"}
"""So that there are rolled segments, sparse indexes and snapshots to recover, not only one young segment."""


@dataclass(slots=True)
class Acknowledged:
    """What the broker has confirmed: offset and number, per partition. Written by the producer's thread alone."""

    by_offset: list[dict[int, int]] = field(default_factory=lambda: [{} for _ in range(PARTITIONS)])
    failures: list[str] = field(default_factory=list)

    def note(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.by_offset[partition][offset] = number_of(value)

    @property
    def count(self) -> int:
        return sum(map(len, self.by_offset))

    def snapshot(self) -> list[dict[int, int]]:
        return [dict(one) for one in self.by_offset]


def number_of(value: bytes) -> int:
    return int(value[:12])


class Load(threading.Thread):
    """Writes numbers as fast as the broker takes them, until told to stop."""

    def __init__(self, bootstrap: str, idempotent: bool) -> None:
        super().__init__(daemon=True)
        self.acknowledged = Acknowledged()
        self.sent = 0
        self._stopping = threading.Event()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "batch.num.messages": 20,
                "linger.ms": 1,
                "queue.buffering.max.messages": 2_000,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )

    def run(self) -> None:
        padding = b"." * 200
        while not self._stopping.is_set():
            value = b"%012d" % self.sent + padding
            try:
                self._producer.produce(
                    TOPIC, value, partition=self.sent % PARTITIONS, on_delivery=self.acknowledged.note
                )
                self.sent += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.01)
        assert self._producer.flush(TIMEOUT_S) == 0

    def stop(self) -> Acknowledged:
        self._stopping.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()
        return self.acknowledged

    def wait_for_more(self, count: int) -> None:
        """Until `count` more records are acknowledged: the broker is up and the load is on."""
        goal = self.acknowledged.count + count
        wait_for(lambda: self.acknowledged.count >= goal)


def wait_for(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def broker_with_topic(configs: dict[str, str]) -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, 1, config=configs)
        admin.create_topics([topic])[TOPIC].result(60)
        yield broker


class Reader:
    """Re-reads what is there, from where it last was sure, and keeps every offset's value for comparison."""

    def __init__(self) -> None:
        self.by_offset: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]

    def read_all(self, bootstrap: str, whole: bool) -> None:
        """Reads every partition to its end; `whole` begins at offset 0 again, to find what changed or went."""
        for partition in range(PARTITIONS):
            with RawClient(bootstrap) as raw:
                end = raw.fetch(TOPIC, partition, 0).high_watermark
            seen = self.by_offset[partition]
            start = 0 if whole else max(len(seen) - 200, 0)
            if end > start:
                self._read(bootstrap, partition, start, end)

    def _read(self, bootstrap: str, partition: int, start: int, end: int) -> None:
        seen = self.by_offset[partition]
        consumer = confluent_consumer(bootstrap, queued_min_messages=100_000)
        consumer.assign([ck.TopicPartition(TOPIC, partition, start)])
        expected = start
        deadline = time.monotonic() + TIMEOUT_S
        while expected < end:
            assert time.monotonic() < deadline, f"partition {partition} stops at {expected} of {end}"
            for message in consumer.consume(5_000, timeout=0.2):
                assert message.error() is None, message.error()
                offset, value = message.offset(), message.value()
                assert offset == expected, f"partition {partition}: offset {offset} after {expected - 1}"
                assert value is not None
                number = number_of(value)
                assert seen.setdefault(offset, number) == number, f"offset {offset} has another value now"
                expected += 1
        consumer.close()


def check(acknowledged: list[dict[int, int]], reader: Reader, unique: bool) -> None:
    """The four zeros of one broker."""
    for partition in range(PARTITIONS):
        found = reader.by_offset[partition]
        missing = {offset for offset, number in acknowledged[partition].items() if found.get(offset) != number}
        assert not missing, f"partition {partition}: {len(missing)} acknowledged records are missing: {missing}"
        numbers = [found[offset] for offset in sorted(found)]
        if unique:
            assert len(set(numbers)) == len(numbers), f"partition {partition} has duplicates"
            assert numbers == sorted(numbers), f"partition {partition} is out of order"


@pytest.mark.slow
@pytest.mark.parametrize("idempotent", [True, False])
def test_kill_under_load(idempotent: bool) -> None:
    """R-LOG-7, R-PRO-3: twenty kills with idempotence, and some without."""
    moments = random.Random(20_250_101)
    kills = KILLS if idempotent else 5
    reader = Reader()
    with broker_with_topic(SMALL_SEGMENTS) as broker:
        load = Load(broker.bootstrap, idempotent)
        load.start()
        for _ in range(kills):
            load.wait_for_more(300)
            time.sleep(moments.uniform(0, 0.15))
            broker.kill()
            acknowledged = load.acknowledged.snapshot()
            broker.start()
            reader.read_all(broker.bootstrap, whole=False)
            check(acknowledged, reader, unique=idempotent)
        load.wait_for_more(300)
        result = load.stop()
        assert result.failures == []
        assert result.count == load.sent
        reader.read_all(broker.bootstrap, whole=True)
        check(result.snapshot(), reader, unique=idempotent)
        if idempotent:
            assert sum(map(len, reader.by_offset)) == load.sent


def test_kill_right_after_the_ack() -> None:
    """R-LOG-7: an acknowledged record is never only in the process's memory: kill at once, every time."""
    with broker_with_topic({}) as broker:
        for life in range(5):
            with RawClient(broker.bootstrap) as raw:
                for number in range(3):
                    answer = raw.produce(TOPIC, 0, build_batch([b"%012d" % (life * 3 + number)]))
                    assert (answer.error, answer.base_offset) == (0, life * 3 + number)
                broker.kill()
            broker.start()
            read = Confluent().read(broker.bootstrap, TOPIC, 0, 3 * (life + 1))
            assert [number_of(one.value or b"") for one in read] == list(range(3 * (life + 1)))


def test_producer_state_survives_a_crash() -> None:
    """R-PRO-3: after kill -9 a duplicate is still known, and a gap still refused."""
    with broker_with_topic({}) as broker:

        def produce(sequence: int) -> tuple[int, int]:
            shape = BatchShape(producer_id=900, producer_epoch=0, base_sequence=sequence)
            with RawClient(broker.bootstrap) as raw:
                answer = raw.produce(TOPIC, 0, build_batch([b"v"], shape))
            return answer.error, answer.base_offset

        for sequence in range(4):
            assert produce(sequence) == (0, sequence)
        broker.kill()
        broker.start()
        assert produce(3) == (0, 3)
        assert produce(1) == (0, 1)
        assert produce(5)[0] == 45
        assert produce(4) == (0, 4)
        broker.restart()
        assert produce(4) == (0, 4)
        assert produce(5) == (0, 5)


def test_topics_survive_a_crash() -> None:
    """R-TOP-5: what was created, changed or deleted before the kill is so after it."""
    with BrokerProcess() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        names = [f"t{number}" for number in range(20)]
        for future in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
            future.result(60)
        for future in admin.delete_topics(names[:10]).values():
            future.result(60)
        broker.kill()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        found = admin.list_topics(timeout=20).topics
        assert sorted(found) == sorted(names[10:])
        assert all(len(one.partitions) == 2 for one in found.values())
        wait_for(lambda: not list(broker.data_dir.glob("**/t0-*")))


def test_cluster_and_ids_stay_the_same() -> None:
    """Topic ids and the cluster's id are not made anew by a crash."""
    with broker_with_topic({}) as broker:

        def identity() -> tuple[str, str]:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            cluster = admin.describe_cluster().result(60)
            described = admin.describe_topics(ck.TopicCollection([TOPIC]))[TOPIC].result(60)
            return str(cluster.cluster_id), str(described.topic_id)

        before = identity()
        broker.kill()
        broker.start()
        assert identity() == before

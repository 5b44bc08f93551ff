"""MirrorMaker 2 of Apache Kafka between two brokers: records and positions of groups arrive.

Run with `--with-java`, as in `make conformance`.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer

from headrace.testing.apache_kafka import MIRROR, fetch_libraries
from headrace.testing.process import BrokerProcess
from tests.compat.confluent_admin import AdminClient, NewTopic

pytestmark = [pytest.mark.java, pytest.mark.headrace_only]

RECORDS = 1_000
PATIENCE_S = 180
SETTINGS = """
clusters = a, b
a.bootstrap.servers = {source}
b.bootstrap.servers = {target}
a->b.enabled = true
a->b.topics = orders
a->b.groups = readers
b->a.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
refresh.topics.interval.seconds = 1
refresh.groups.interval.seconds = 1
"""


@contextmanager
def mirror_maker(directory: Path, source: str, target: str) -> Iterator[Path]:
    """Its log."""
    settings, log = directory / "mirror.properties", directory / "mirror.log"
    settings.write_text(SETTINGS.format(source=source, target=target))
    options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    program = ["org.apache.kafka.connect.mirror.MirrorMaker", str(settings)]
    with log.open("wb") as output:
        command = ["java", *options, "-cp", f"{fetch_libraries(MIRROR)}/*", *program]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)


def read(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    """So many records, or fewer if they do not come in time."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 1000,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    consumer.close()  # which commits
    return found


def positions(admin: AdminClient, group: str) -> list[str]:
    """The topics in which it has some."""
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return [place.topic for place in asked[group].result(60).topic_partitions or []]


def test_records_and_positions_are_mirrored(tmp_path: Path) -> None:
    with BrokerProcess({}) as source, BrokerProcess({}) as target:
        maker = AdminClient({"bootstrap.servers": source.bootstrap})
        maker.create_topics([NewTopic("orders", 2)])["orders"].result(60)
        values = [str(number).encode() for number in range(RECORDS)]
        producer = Producer({"bootstrap.servers": source.bootstrap})
        for value in values:
            producer.produce("orders", value)
        assert producer.flush(60) == 0
        assert len(read(source.bootstrap, "orders", "readers", RECORDS)) == RECORDS
        with mirror_maker(tmp_path, source.bootstrap, target.bootstrap) as log:
            assert sorted(read(target.bootstrap, "a.orders", "check", RECORDS)) == sorted(values)
            admin = AdminClient({"bootstrap.servers": target.bootstrap})
            deadline = time.monotonic() + PATIENCE_S
            while "a.orders" not in positions(admin, "readers"):
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
            assert " ERROR " not in log.read_text()

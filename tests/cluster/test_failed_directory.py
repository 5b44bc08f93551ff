"""A disk that fails under a running broker (R-LOG-8, R-OPS-8): what an operator reads and types, and nothing lost.

The second data directory of broker 1 is a file system of its own, which is then shut down: from that moment every
call to it ends with EIO, as with a disk that is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka.cimpl import TopicPartition

from headrace.cli.main import command_line
from headrace.testing.process_cluster import ProcessCluster, wait_until

pytestmark = pytest.mark.headrace_only
EXT4_SHUTDOWN, WITHOUT_FLUSH = 0x8004587D, 2
PARTITIONS = 4
TOPICS = ("orders", "payments")
PATIENCE_S = 60
DISK_BYTES = 32 * 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    steps = (["mkfs.ext4", "-q", "-F", str(image)], ["mount", "-o", "loop", str(image), str(place)])
    for step in steps:
        try:
            subprocess.run(step, check=True, capture_output=True)
        except subprocess.CalledProcessError:
            pytest.skip("making and mounting a file system is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def cluster(disk: Path, tmp_path: Path) -> Iterator[ProcessCluster]:
    root = tmp_path / "cluster"
    root.mkdir()
    made = ProcessCluster(3, {"default.replication.factor": "2"}, root=root)
    made.brokers[1].overrides["log.dirs"] = f"{root / 'data'},{disk / 'second'}"
    with made:
        yield made


class Operator:
    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster

    def types(self, *words: str, code: int | None = 0) -> str:
        result = CliRunner().invoke(command_line, ["-b", self._cluster.bootstrap, *words])
        assert code is None or result.exit_code == code, (words, result.output)
        return result.output

    def health(self) -> list[dict[str, Any]]:
        """What is wrong."""
        findings = json.loads(self.types("cluster", "health", "--format", "json", code=None))
        return [one for one in findings if one["state"] == "error"]


def produce(bootstrap: str, first: int, count: int) -> set[tuple[str, int, bytes]]:
    """So many to every partition; what was acknowledged, which is all of it."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    sent = {
        (topic, partition, b"%d" % number)
        for topic in TOPICS
        for partition in range(PARTITIONS)
        for number in range(first, first + count)
    }
    for topic, partition, value in sent:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not failed
    return sent


def stored(bootstrap: str, count: int) -> list[tuple[str, int, bytes]]:
    """So many records and whatever comes with them, until the ends of all partitions."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": "true"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, n, 0) for topic in TOPICS for n in range(PARTITIONS)])
    found: list[tuple[str, int, bytes]] = []
    ended: set[tuple[str, int]] = set()
    try:
        while len(ended) < len(TOPICS) * PARTITIONS or len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} of {count} records, {len(ended)} ends"
            topic, partition = message.topic() or "", message.partition() or 0
            if message.error() is not None:
                ended.add((topic, partition))
            else:
                found.append((topic, partition, message.value() or b""))
    finally:
        consumer.close()
    return found


def metrics(log: str) -> str:
    """Of the broker with this log, which says where."""
    where = re.findall(r"Metrics and health are on (http://\S+)", log)[-1]
    with urllib.request.urlopen(f"{where}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read(), "utf-8")


def fail(disk: Path) -> None:
    there = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(there, EXT4_SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
    finally:
        os.close(there)


def test_its_partitions_move_elsewhere(cluster: ProcessCluster, disk: Path, tmp_path: Path) -> None:
    operator = Operator(cluster)
    for topic in TOPICS:
        operator.types("topic", "create", topic, "--partitions", str(PARTITIONS))
    sent = produce(cluster.bootstrap, 0, 50)
    lost = {path.name for path in (disk / "second" / "broker-1").glob("*-[0-9]")}
    assert {name.rpartition("-")[0] for name in lost} == set(TOPICS)
    fail(disk)
    sent |= produce(cluster.bootstrap, 50, 50)
    wait_until(lambda: any("second of broker 1 is offline" in one["what"] for one in operator.health()), "told")
    wait_until(lambda: any("under-replicated" in one["what"] for one in operator.health()), "told")
    said = {one["what"].split(":")[0]: one["advice"] for one in operator.health()}
    assert (
        "`headrace partition move --offline`"
        in said[f"{disk / 'second'} of broker 1 is offline (KAFKA_STORAGE_ERROR)."]
    )
    assert "failed or full disk" in next(advice for what, advice in said.items() if "under-replicated" in what)
    assert "kafka_log_logmanager_offlinelogdirectorycount 1\n" in metrics(cluster.brokers[1].log_text())
    # One topic in Kafka's way, the rest in ours.
    _with_kafkas_tool(operator, "orders", tmp_path)
    assert "payments" in operator.types("partition", "move", "--offline", "--dry-run")
    operator.types("partition", "move", "--offline", "--yes")
    assert "Nothing to move" in operator.types("partition", "move", "--offline", "--yes")
    (left,) = operator.health()
    assert "No partition needs it any more" in left["advice"]
    sent |= produce(cluster.bootstrap, 100, 50)
    found = stored(cluster.bootstrap, len(sent))
    assert len(found) == len(sent)
    assert set(found) == sent


def _with_kafkas_tool(operator: Operator, topic: str, tmp_path: Path) -> None:
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    tool = "kafka-reassign-partitions"
    brokers = ("--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
    plan.write_text(operator.types(tool, "--generate", *brokers).strip().splitlines()[-1])
    file = ("--reassignment-json-file", str(plan))
    assert "Successfully started" in operator.types(tool, "--execute", *file)
    wait_until(
        lambda: operator.types(tool, "--verify", *file).count("is completed.") == PARTITIONS,
        "moved by Kafka's tool",
    )

"""A topic that is copied by drivers that die, and the count at the end: every row once, nothing open."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from headrace.model.topics import TopicPartition
from headrace.spark.client.cluster import LATEST, READ_COMMITTED, BlockingCluster, ClusterSettings
from headrace.spark.client.creating import TopicShape, ensure_topic
from headrace.spark.client.transactions import TransactionClient

ROWS = 1600
SOURCE_PARTITIONS = 2
TARGET_PARTITIONS = 3
RUN_TIMEOUT_S = 900.0
POLL_S = 0.1
CLIENT_TIMEOUT_S = 60.0
DRIVER = "headrace.testing.sink_drills.driver"
LOCAL = "local[2,4]"
"""Two cores, four attempts for a task."""


@dataclass
class Run:
    """One driver process."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> int:
        try:
            return self.process.wait(RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver does not end:\n{self.told()}") from None

    def told(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("\tat "))[-6000:]

    def kill(self) -> None:
        """With Java, which is in its process group."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


@dataclass
class Scene:
    bootstrap: str
    folder: Path
    master: str = LOCAL
    settings: dict[str, str] = field(default_factory=dict)
    replicas: int = 1
    rows: int = ROWS
    runs: list[Run] = field(default_factory=list)
    source: str = ""
    target: str = ""
    sent: int = 0

    def __post_init__(self) -> None:
        stamp = f"{os.getpid()}-{time.time_ns()}"
        self.source, self.target = f"in-{stamp}", f"out-{stamp}"
        cluster = BlockingCluster(ClusterSettings(self.bootstrap))
        ensure_topic(cluster, self.source, TopicShape(SOURCE_PARTITIONS, self.replicas))
        ensure_topic(cluster, self.target, TopicShape(TARGET_PARTITIONS, self.replicas))
        cluster.close()
        self.send(self.rows)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def send(self, count: int) -> None:
        producer = ck.Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for number in range(self.sent, self.sent + count):
            producer.produce(self.source, str(number), str(number), partition=number % SOURCE_PARTITIONS)
        assert producer.flush(CLIENT_TIMEOUT_S) == 0
        self.sent += count

    def start(self, *dooms: dict[str, Any], mutant: str | None = None) -> Run:
        """A driver that runs the query once for each doom, and once to its end if there is none."""
        spec = {
            "bootstrap": self.bootstrap,
            "source": self.source,
            "target": self.target,
            "checkpoint": str(self.checkpoint),
            "master": self.master,
            "settings": self.settings,
            "dooms": [{"folder": str(self.folder), "mutant": mutant, **doom} for doom in dooms or ({},)],
        }
        log = self.folder / f"driver-{len(self.runs)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", DRIVER, json.dumps(spec)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.runs.append(Run(process, log))
        return self.runs[-1]

    def killed(self, stage: str, batch: int, mutant: str | None = None) -> None:
        """A driver runs until it is killed at a stage of a batch."""
        run = self.start({"stage": stage, "act": "kill", "batch": batch}, mutant=mutant)
        assert run.wait() == -signal.SIGKILL, f"not killed at {stage} of batch {batch}:\n{run.told()}"

    def finished(self, *dooms: dict[str, Any], mutant: str | None = None) -> None:
        run = self.start(*dooms, mutant=mutant)
        assert run.wait() == 0, run.told()

    def reached(self, stage: str, run: Run) -> None:
        """Wait until a driver holds at a stage."""
        wait_until(lambda: (self.folder / f"reached-{stage}").exists(), run)

    def go(self) -> None:
        (self.folder / "go").touch()

    def save_checkpoint(self, name: str) -> None:
        shutil.copytree(self.checkpoint, self.folder / name)

    def restore_checkpoint(self, name: str) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.folder / name, self.checkpoint)

    def close(self) -> None:
        for run in self.runs:
            run.kill()

    # --- the count

    def check(self) -> None:
        """AssertionError unless every row exists once, and no transaction is open."""
        problems = self.problems()
        assert not problems, "; ".join(problems)

    def problems(self) -> list[str]:
        found = Counter(self.read())
        missing = sum(1 for number in range(self.sent) if str(number).encode() not in found)
        doubled = sum(count - 1 for count in found.values())
        told = []
        if missing or doubled or len(found) != self.sent:
            told.append(f"{missing} rows of {self.sent} are missing, {doubled} are there again")
        still = self.still_open()
        return told + ([f"open: {', '.join(still)}"] if still else [])

    def still_open(self) -> list[str]:
        """Transactions, and partitions that readers of committed records cannot read to their end."""
        cluster = BlockingCluster(ClusterSettings(self.bootstrap))
        try:
            places = [TopicPartition(self.target, number) for number in range(TARGET_PARTITIONS)]
            deadline = time.monotonic() + CLIENT_TIMEOUT_S
            while True:
                wanted = dict.fromkeys(places, LATEST)
                ends = cluster.list_offsets(wanted)
                stable = cluster.list_offsets(wanted, isolation=READ_COMMITTED)
                behind = [str(place) for place in places if stable[place] != ends[place]]
                found = [*TransactionClient(cluster).open_ids("hr.sink."), *behind]
                if not found or time.monotonic() > deadline:  # markers are written after the answer
                    return found
                time.sleep(POLL_S)
        finally:
            cluster.close()

    def read(self) -> Iterable[bytes]:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "count",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        left = set(range(TARGET_PARTITIONS))
        consumer.assign([ck.TopicPartition(self.target, number, 0) for number in left])
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        try:
            while left:
                assert time.monotonic() < deadline, f"partitions {left} are not read to their end"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    value = message.value()
                    assert isinstance(value, bytes)
                    yield value
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
        finally:
            consumer.close()


def wait_until(condition: Callable[[], bool], run: Run) -> None:
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while not condition():
        assert run.process.poll() is None, run.told()
        assert time.monotonic() < deadline, run.told()
        time.sleep(POLL_S)

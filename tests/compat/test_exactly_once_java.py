"""Kafka Streams with `exactly_once_v2` and a transactional Java producer, both killed and started again (R-CON-5).

The same on Apache Kafka and on Headrace: a result for every order, each once, in the order of the counts.
Run with `--with-java`, as in `make conformance`.
"""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from headrace.testing.apache_kafka import STREAMS, fetch_libraries
from tests.compat.conftest import MakeTopic, unique_name

pytestmark = pytest.mark.java

SOURCE = Path(__file__).parent / "java" / "ExactlyOnce.java"
ORDERS, CUSTOMERS, REGIONS, PARTITIONS = 3_000, 40, 6, 4
PAUSE_MS = 30
KILLS = 3
PATIENCE_S = 1200
"""Two minutes are enough where nobody else keeps the cores busy; there a JVM may take minutes to start."""
EXPECTED = {
    region: [order * 7 % 100 for order in range(ORDERS) if order % CUSTOMERS % REGIONS == region]
    for region in range(REGIONS)
}


class JavaProgram:
    """One of the two programs: started as often as it is killed."""

    def __init__(self, classes: Path, output: IO[bytes], *arguments: str) -> None:
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        path = f"{classes}:{fetch_libraries(STREAMS)}/*"
        self._command = ["java", *options, "-cp", path, "ExactlyOnce", *arguments]
        self._output = output
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=self._output, stderr=subprocess.STDOUT)

    def kill_and_start_again(self) -> None:
        self.kill()
        self.process = self._start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def programs(classes: Path, log: Path, *commands: tuple[str, ...]) -> Iterator[list[JavaProgram]]:
    with log.open("wb") as output:
        running = [JavaProgram(classes, output, *command) for command in commands]
        try:
            yield running
        finally:
            for program in running:
                program.kill()


def compiled(directory: Path) -> Path:
    directory.mkdir()
    command = ["javac", "-d", str(directory), "-cp", f"{fetch_libraries(STREAMS)}/*", str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


class Results:
    """Every committed result, read as it comes."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        self.by_region: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self.count = 0

    def read(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for message in self._consumer.consume(500, timeout=min(left, 0.5)):
                assert message.error() is None, message.error()
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                count, total = value.split()
                self.by_region[int(key.rpartition(b"-")[2])].append((int(count), int(total)))
                self.count += 1

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.timeout(2 * PATIENCE_S)
def test_streams_and_a_transactional_producer(bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    orders, totals = make_topic(PARTITIONS), make_topic(PARTITIONS)
    application = unique_name("totals")
    log = tmp_path / "programs.log"
    feed = ("feed", bootstrap, orders, str(ORDERS), str(PAUSE_MS))
    streams = ("totals", bootstrap, application, str(tmp_path / "state"), orders, totals)
    results = Results(bootstrap, totals)
    try:
        with programs(compiled(tmp_path / "classes"), log, feed, streams) as (feeder, counter):
            kills, deadline = 0, time.monotonic() + PATIENCE_S
            while results.count < ORDERS:
                assert time.monotonic() < deadline, f"{results.count} of {ORDERS}\n{log.read_text()[-4000:]}"
                results.read(0.5)
                if kills < KILLS and results.count > ORDERS * (kills + 1) // (KILLS + 2):
                    kills += 1
                    feeder.kill_and_start_again()
                    counter.kill_and_start_again()
            assert kills == KILLS
            results.read(3)  # what comes twice comes now
        for region, amounts in EXPECTED.items():
            found = results.by_region[region]
            assert [count for count, _ in found] == list(range(1, len(amounts) + 1)), f"region {region}"
            assert found[-1][1] == sum(amounts), f"region {region}"
    finally:
        results.close()

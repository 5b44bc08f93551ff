"""Pipelines on a standalone Spark cluster, master and two workers as processes: R-SPK-8."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import fastavro
import pyarrow.parquet
import pytest

from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.client.transactions import TransactionClient
from headrace.testing.spark_cluster import (
    EXECUTOR_MEMORY,
    SparkCluster,
    cluster_environment,
    command_of,
    descendants,
    kill_in_the_middle_of_a_task,
    wait_for,
)
from tests.conftest import ROOT, StartBroker
from tests.spark.topics import Topics

LOGS = ROOT / "examples" / "pipelines" / "logs" / "pipeline.yml"
PARTITIONS = 2
SLICES = 60
EVENTS_IN_SLICE = 100
KILL_AFTER = 15
"""Slices: the executor is killed while more and more comes."""
BROKEN = b'{"time": "2026-'
SERVICES = ("checkout", "search", "login")
STOP_S = 400.0
HIDDEN = re.compile(r"(^|/)[_.]")
"""What readers of a folder pass over."""
pytestmark = [pytest.mark.headrace_only, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(java, tmp_path_factory.mktemp("cluster")) as running:
        yield running


def small_and_quick() -> list[str]:
    """Settings for a job of seconds."""
    quick = os.environ.get("SPARK_SUBMIT_OPTS", "")
    settings = ("spark.sql.shuffle.partitions=2", f"spark.executor.extraJavaOptions={quick}")
    return [word for setting in settings for word in ("--conf", setting)]


@dataclass
class Run:
    """`headrace pipeline ...` as a process."""

    cluster: SparkCluster
    directory: Path
    bootstrap: str
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self, verb: str, *arguments: str) -> int:
        with (self.directory / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "pipeline", verb, *arguments],
                env=cluster_environment(self.cluster.master.java, self.directory)
                | {"HEADRACE_STATE_DIR": str(self.directory / "state")}
                | {"HEADRACE_BOOTSTRAP_SERVERS": self.bootstrap}
                | dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self.process.pid

    def check_alive(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.told()
        return True

    def wait(self) -> int:
        assert self.process is not None
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.told()) from None

    def told(self) -> str:
        logs = [self.directory / "output", *(self.directory / "state").glob("pipelines/*/spark.log")]
        return "\n".join(log.read_text(errors="replace")[-4_000:] for log in logs)

    def close(self) -> None:
        """Only if the test has failed is there anything left to end."""
        if self.process is not None and self.process.poll() is None:
            left = [self.process.pid, *descendants(self.process.pid)]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()


@dataclass
class Sent:
    """What went into logs.raw."""

    topics: Topics
    good: set[str] = field(default_factory=set)
    errors: set[str] = field(default_factory=set)
    broken: int = 0

    def slice(self) -> None:
        values: list[bytes] = []
        first = len(self.good)
        for number in range(first, first + EVENTS_IN_SLICE):
            service, level = SERVICES[number % len(SERVICES)], "error" if number % 7 == 0 else "info"
            event = {"time": "2026-01-01T00:00:00Z", "service": service, "level": level, "took_ms": 5}
            values.append(json.dumps(event | {"message": f"event {number}"}).encode())
            self.good.add(f"event {number}")
            self.errors |= {f"event {number}"} if level == "error" else set()
        self.broken += 1
        keys = [str(number) for number in range(first, first + EVENTS_IN_SLICE + 1)]
        self.topics.send("logs.raw", [*values, BROKEN], keys=keys)


def archived(folder: Path) -> list[str]:
    """The rows that any reader of the folder sees, whatever was killed."""
    files = [file for file in folder.rglob("*.parquet") if not HIDDEN.search(str(file.relative_to(folder)))]
    return [row for file in files for row in pyarrow.parquet.read_table(file).column("message").to_pylist()]


def written(topics: Topics, topic: str) -> list[dict[str, object]]:
    return [json.loads(record.value or b"{}") for record in topics.read(topic, range(3))]


def counted(topics: Topics) -> int:
    last = {(row["minute"], row["service"]): row["events"] for row in written(topics, "logs.per-minute")}
    return sum(int(str(events)) for events in last.values())


def test_the_log_pipeline_survives_a_killed_executor(
    cluster: SparkCluster, own_broker: StartBroker, tmp_path: Path
) -> None:
    """R-SPK-8: the example's file as it is, through spark-submit; every record arrives, in the archive once."""
    topics = Topics(own_broker().bootstrap)
    topics.create("logs.raw", PARTITIONS)
    archive = tmp_path / "archive"
    sent = Sent(topics)
    run = Run(cluster, tmp_path, topics.bootstrap, {"LOGS_ARCHIVE": str(archive)})
    sent.slice()
    spark_options = ("--", "--executor-memory", EXECUTOR_MEMORY, "--driver-memory", "512m")
    run.start("submit", str(LOGS), "--master", cluster.url, *small_and_quick(), *spark_options)
    try:
        wait_for("the first batch", lambda: run.check_alive() and len(archived(archive)) > 0, run.told)
        before = [worker.executors() for worker in cluster.workers]
        lost: list[str] = []
        for number in range(SLICES - 1):
            sent.slice()
            if number == KILL_AFTER:
                lost = kill_in_the_middle_of_a_task(cluster.workers[0])
        wait_for("the archive", lambda: run.check_alive() and set(archived(archive)) >= sent.good, run.told)
        wait_for("the counts", lambda: run.check_alive() and counted(topics) >= len(sent.good), run.told)
        wait_for("the dead letters", lambda: len(topics.read("logs.dead")) >= sent.broken, run.told)
        wait_for("the errors", lambda: len(written(topics, "logs.errors")) >= len(sent.errors), run.told)
        wait_for("a new executor", lambda: len(cluster.executors()) == len(cluster.workers), run.told)
        after = cluster.workers[0].executors()
        assert run.process is not None
        own = list(descendants(run.process.pid))
        run.process.terminate()
        assert run.wait() == 0, run.told()
    finally:
        run.close()
    assert all(len(executors) == 1 for executors in before), "each worker has an executor"
    assert all(
        "Running task" in log.read_text() for worker in cluster.workers for log in worker.executor_logs()[:1]
    )
    assert lost, "the executor was killed in the middle of a task"
    assert after
    assert after != before[0]
    assert sorted(archived(archive)) == sorted(sent.good), "once each"
    assert {row["message"] for row in written(topics, "logs.errors")} == sent.errors
    assert counted(topics) == len(sent.good)
    assert {record.value for record in topics.read("logs.dead")} == {BROKEN}
    assert not any(command_of(pid) for pid in own), "everything of the driver has ended"
    wait_for("the end of the executors", lambda: not cluster.executors())


SCHEMA = {
    "type": "record",
    "name": "Visit",
    "fields": [{"name": "page", "type": "string"}, {"name": "visitor", "type": "int"}],
}
STEPS = """\
from pyspark.sql.functions import udf
from wording import loudly

@udf("string")
def loud(text):
    return loudly(text)

def enrich(visits):
    return visits.withColumn("page", loud("page"))
"""
PIPELINE = """\
name: visits
sources:
  visits: {topic: visits, format: avro, schema_file: visit.avsc}
steps:
  - {name: enriched, python: "steps.py:enrich", from: [visits]}
sinks:
  out: {from: enriched, topic: visits.loud, create: {partitions: 3}}
"""


def test_python_steps_and_schemas_reach_the_executors(
    cluster: SparkCluster, own_broker: StartBroker, tmp_path: Path
) -> None:
    """R-SPK-8: a function with a UDF, a module beside it, and an Avro schema are in no worker's path."""
    topics = Topics(own_broker().bootstrap)
    topics.create("visits", PARTITIONS)
    for partition in range(PARTITIONS):
        topics.send("visits", [avro({"page": f"page-{partition}", "visitor": 7})], partition=partition)
    files = {"visit.avsc": json.dumps(SCHEMA), "steps.py": STEPS, "pipeline.yml": PIPELINE}
    files["wording.py"] = "def loudly(text):\n    return text.upper() + '!'\n"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    run = Run(cluster, tmp_path, topics.bootstrap)
    settings = [f"spark.executor.memory={EXECUTOR_MEMORY}", "spark.driver.memory=512m", "spark.cores.max=1"]
    options = [*small_and_quick(), *(word for setting in settings for word in ("--conf", setting))]
    run.start("run", str(tmp_path / "pipeline.yml"), "--once", "--master", cluster.url, *options)
    try:
        assert run.wait() == 0, run.told()
    finally:
        run.close()
    rows = written(topics, "visits.loud")
    expected = [{"page": f"PAGE-{partition}!", "visitor": 7} for partition in range(PARTITIONS)]
    assert sorted(rows, key=str) == expected, run.told()


def avro(record: Mapping[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), dict(record))
    return out.getvalue()


COPY = """\
name: copy
sources:
  numbers: {topic: numbers, starting: earliest}
sinks:
  out: {from: numbers, topic: numbers.out, format: raw, create: {partitions: 3}}
"""
COPY_SLICES = 30


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_row_is_written_once_whatever_of_the_cluster_dies(
    java: str, own_broker: StartBroker, tmp_path: Path
) -> None:
    """R-SPK-2, R-SPK-8: a pipeline as it is, with the exactly-once sink, on master and two workers: an executor is
    killed in a task, the driver is killed and started again, a worker is killed."""
    topics = Topics(own_broker().bootstrap)
    topics.create("numbers", PARTITIONS)
    (tmp_path / "pipeline.yml").write_text(COPY)
    sent: list[str] = []

    def send(slices: int) -> None:
        for _ in range(slices):
            more = [str(number) for number in range(len(sent), len(sent) + EVENTS_IN_SLICE)]
            topics.send("numbers", more, keys=more)
            sent.extend(more)

    def copied() -> list[str]:
        return [(record.value or b"").decode() for record in topics.read("numbers.out", range(3))]

    settings = [f"spark.executor.memory={EXECUTOR_MEMORY}", "spark.driver.memory=512m"]
    options = [*small_and_quick(), *(word for setting in settings for word in ("--conf", setting))]
    with SparkCluster(java, tmp_path / "cluster") as own:
        command = ("run", str(tmp_path / "pipeline.yml"), "--master", own.url, *options)
        run = Run(own, tmp_path, topics.bootstrap)

        def all_there() -> bool:
            return run.check_alive() and topics.exists("numbers.out") and len(copied()) >= len(sent)

        try:
            send(1)
            run.start(*command)
            wait_for("the first rows", all_there, run.told)
            send(COPY_SLICES)
            assert kill_in_the_middle_of_a_task(own.workers[0])
            wait_for("the rows after a killed executor", all_there, run.told)
            send(COPY_SLICES)
            run.close()
            run.start(*command)
            wait_for("the rows after a killed driver", all_there, run.told)
            own.workers[0].kill()
            send(COPY_SLICES)
            wait_for("the rows after a killed worker", all_there, run.told)
            assert run.process is not None
            run.process.terminate()
            assert run.wait() == 0, run.told()
        finally:
            run.close()
    assert sorted(copied(), key=int) == sent, "each once"
    cluster = BlockingCluster(ClusterSettings(topics.bootstrap))
    assert TransactionClient(cluster).open_ids("hr.sink.") == []
    cluster.close()

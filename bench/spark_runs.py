"""Starts `bench.spark_rates`, and does what belongs between the runs of Spark.

Before each run everything is written back to the disk, and free memory is touched memory. A run that writes gets a
topic of its own, which is removed before the next one: the log then grows into recycled pages, whatever ran
before. Else the last runs of many pay several times as much for the broker's page cache as the first, and what is
compared is the memory of the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.admin import end_offset
from bench.run import Run, Watch
from bench.shapes import PARTITIONS
from bench.spark_pace import asked_bytes
from headrace.testing.spark_connector import SparkConnector

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 1800


class SparkRuns:
    """What is prepared before each run, and found after it."""

    def __init__(self, run: Run) -> None:
        self.stored: dict[str, int] = {}
        """The rows that each topic held after the run that wrote to it."""
        self.notes: dict[str, dict[str, object]] = {}
        """By topic: the broker's CPU time, and what happened to memory."""
        self._run = run
        self._topic = ""
        self._written_bytes = 0
        self._watch: Watch | None = None

    def begin(self, written_bytes: int) -> str:
        """Returns the topic for a run that writes so much, or nothing for a read."""
        self.end()
        if written_bytes:
            self._topic = self._run.topic(PARTITIONS)
        os.sync()
        self._written_bytes = written_bytes
        self._watch = self._run.watch()
        return self._topic

    def end(self) -> None:
        """Look at what the last run wrote, and remove it."""
        if self._topic and self._watch is not None:
            self.notes[self._topic] = self._watch.notes(self._written_bytes)
            bootstrap = self._run.system.bootstrap
            self.stored[self._topic] = sum(
                end_offset(bootstrap, self._topic, number) for number in range(PARTITIONS)
            )
            self._run.drop_topic(self._topic)
        self._topic, self._watch = "", None


def run_spark(connector: SparkConnector, spec: dict[str, Any], runs: SparkRuns) -> list[dict[str, Any]]:
    """What each run gave, in order; `runs` then has what was found after it."""
    command = [str(connector.python), "-m", "bench.spark_rates", json.dumps(spec)]
    line = ""
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=spark_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as spark,
    ):
        assert spark.stdin is not None
        assert spark.stdout is not None
        with limited(spark, TIMEOUT_S):
            for line in spark.stdout:
                if (written_bytes := asked_bytes(line)) is not None:
                    spark.stdin.write(f"{runs.begin(written_bytes)}\n")
                    spark.stdin.flush()
        if spark.wait() != 0:
            log.seek(0)
            raise ValueError(f"Spark ended with {spark.returncode}: {log.read()[-1500:]}")
    runs.end()
    found: list[dict[str, Any]] = json.loads(line)
    return found


@contextmanager
def limited(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Kill the process if this takes longer."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def spark_environment() -> dict[str, str]:
    """Without what was set for another Spark."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}

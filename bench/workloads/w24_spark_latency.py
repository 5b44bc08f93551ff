"""W24: how old a record is when a stream of Spark has copied it to another topic."""

from __future__ import annotations

import contextlib
import json
import statistics
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import IO, Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.measure import Figures, Measurement
from bench.registry import workload
from bench.run import Run
from bench.spark_runs import ROOT, spark_environment
from bench.workloads.w17_spark import find_connector
from headrace.testing.spark_connector import SparkConnector

RATE = 500
"""Records per second."""
WARM_UP_S, QUICK_WARM_UP_S = 10.0, 3.0
SECONDS, QUICK_SECONDS = 20.0, 5.0
ROUNDS, QUICK_ROUNDS = 3, 1
PARTITIONS = 2
DRAIN_S = 60.0
END_S = 120.0
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "Spark's connector": ("kafka", {}),
    "at least once": ("headrace", {"delivery": "at-least-once"}),
    "exactly once": ("headrace", {"delivery": "exactly-once"}),
}
STAMP = struct.Struct("<d")


@workload("W24", "Spark: latency from topic to topic", max_rounds=1, only=("headrace",), in_quick=False)
def stream_latency(run: Run) -> Iterator[Measurement]:
    """500 records of 100 B a second, whatever happens to them (open loop), are copied from a topic to another by a
    stream of Spark 4.0.0 (`local[2]`, two partitions, one batch right after the other): with Spark's own `kafka`
    format, and with `headrace` at least once and exactly once, in turn, in one session, three times. Latency is
    from the time a record was due to its arrival at a consumer of committed records."""
    found: dict[str, list[Figures]] = {case: [] for case in CASES}
    missing = dict.fromkeys(CASES, 0)
    with Copying(run, find_connector()) as spark:
        for _ in range(run.choose(ROUNDS, QUICK_ROUNDS)):
            for case in CASES:
                figures, lost = one_round(run, spark, case)
                found[case].append(figures)
                missing[case] += lost
    for case, rounds in found.items():
        medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        yield Measurement(case, medians, missing[case], {"rounds": rounds})


def one_round(run: Run, spark: Copying, case: str) -> tuple[Figures, int]:
    kind, options = CASES[case]
    source, target = run.topic(PARTITIONS), run.topic(PARTITIONS)
    seconds = run.choose(SECONDS, QUICK_SECONDS)
    with Traffic(run.system.bootstrap, source, target) as traffic:
        spark.begin({"format": kind, "source": source, "target": target, "options": options})
        time.sleep(run.choose(WARM_UP_S, QUICK_WARM_UP_S))
        since_s = time.monotonic()
        time.sleep(seconds)
        traffic.finish()
        told = spark.end()
    ages, sent = traffic.ages_ms(since_s, since_s + seconds)
    cuts = statistics.quantiles(ages, n=100)
    figures = {
        "p50_ms": statistics.median(ages),
        "p99_ms": cuts[98],
        "max_ms": max(ages),
        "batch_p50_ms": statistics.median(told["batch_ms"]),
        "batches": told["batches"],
        "spark_cpu_seconds": told["cpu_seconds"],
    }
    return figures, max(0, sent - len(ages))


class Traffic:
    """Records that carry the time at which they were due, and a consumer that notes when they arrive."""

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        self._source = source
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})
        group = {"group.id": "bench-latency", "enable.auto.commit": False}
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "log_level": 0, "isolation.level": "read_committed", **group}
        )
        self._consumer.assign([TopicPartition(target, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        self._sent: list[float] = []
        self._arrived: dict[float, float] = {}
        self._no_more, self._ended = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._receive)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._no_more.set()
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()

    def finish(self) -> None:
        """Returns when all have arrived, or after a minute."""
        self._no_more.set()
        self._threads[0].join()
        give_up_s = time.monotonic() + DRAIN_S
        while len(self._arrived) < len(self._sent) and time.monotonic() < give_up_s:
            time.sleep(0.05)

    def ages_ms(self, since_s: float, until_s: float) -> tuple[list[float], int]:
        """The ages of the records that were due between the two times and have arrived, and how many were due."""
        due = [at_s for at_s in self._sent if since_s <= at_s < until_s]
        return [(self._arrived[at_s] - at_s) * 1000 for at_s in due if at_s in self._arrived], len(due)

    def _send(self) -> None:
        due_s = time.monotonic()
        while not self._no_more.is_set():
            if (early_s := due_s - time.monotonic()) > 0:
                time.sleep(early_s)
            self._producer.produce(self._source, STAMP.pack(due_s).ljust(100, b"."))
            self._producer.poll(0)
            self._sent.append(due_s)
            due_s += 1 / RATE
        self._producer.flush(DRAIN_S)

    def _receive(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(RATE, 0.02):
                if message.error() is None:
                    value = message.value()
                    assert isinstance(value, bytes)
                    self._arrived.setdefault(STAMP.unpack_from(value)[0], time.monotonic())


class Copying:
    """The process with Spark."""

    def __init__(self, run: Run, connector: SparkConnector) -> None:
        spec = {"bootstrap": run.system.bootstrap, "jars": [str(jar) for jar in connector.jars]}
        self._command = [str(connector.python), "-m", "bench.spark_copying", json.dumps(spec)]

    def __enter__(self) -> Self:
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=spark_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def begin(self, case: dict[str, Any]) -> None:
        """Returns when the first batch is done."""
        self._say(json.dumps(case))
        self._hear(("started",))

    def end(self) -> dict[str, Any]:
        self._say("stop")
        told: dict[str, Any] = json.loads(self._hear(("{",)))
        return told

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _hear(self, beginnings: Sequence[str]) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(tuple(beginnings)):
                return line
        self._errors.seek(0)
        raise ValueError(f"Spark has ended: {self._errors.read()[-1500:].decode(errors='replace')}")

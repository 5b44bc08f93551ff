"""Ordinary clients as load: Kafka's own performance tools (Java) and librdkafka, each in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import Latency

CLIENT_HEAP = "-Xmx512M"
"""Heap of Kafka's tools, as their start script sets it."""
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class ClientResult:
    records: int
    seconds: float
    latency: Latency | None
    errors: int = 0
    busiest_thread: float | None = None
    """The share of one core that its busiest thread used, where the client reports it: near 1, the client is the
    limit and not the broker."""
    cpu_seconds: float | None = None
    """The CPU time of all threads of the client, where it reports it."""


def _java(libraries: Path, tool: str, *arguments: str) -> str:
    command = ["java", CLIENT_HEAP, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{libraries}/*"]
    command += [f"org.apache.kafka.tools.{tool}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ConnectionError(f"{tool} ended with {done.returncode}: {done.stderr[-2000:]}{done.stdout[-500:]}")
    return done.stdout


def producer_performance(
    libraries: Path, bootstrap: str, topic: str, *, records: int, size: int, properties: dict[str, str]
) -> ClientResult:
    settings = {"bootstrap.servers": bootstrap, **properties}
    text = _java(
        libraries,
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1"),
        *("--producer-props", *(f"{key}={value}" for key, value in settings.items())),
    )
    return parse_producer_performance(text)


def parse_producer_performance(text: str) -> ClientResult:
    """Parses the last summary line of the tool."""
    found = re.findall(
        r"(\d+) records sent, ([\d.]+) records/sec .*?([\d.]+) ms max latency, (\d+) ms 50th, \d+ ms 95th, "
        r"(\d+) ms 99th, (\d+) ms 99\.9th",
        text,
    )
    if not found:
        raise ValueError(f"ProducerPerformance printed no summary: {text[-500:]}")
    sent, rate, worst, p50, p99, p999 = (float(value) for value in found[-1])
    latency = Latency(p50 * 1e3, p99 * 1e3, p999 * 1e3, worst * 1e3)
    return ClientResult(int(sent), sent / rate, latency)


def consumer_performance(libraries: Path, bootstrap: str, topic: str, *, records: int) -> ClientResult:
    """Runs Kafka's consumer benchmark; the broker must support consumer groups."""
    text = _java(
        libraries,
        "ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(records), "--hide-header"),
    )
    return parse_consumer_performance(text, records)


def parse_consumer_performance(text: str, wanted: int) -> ClientResult:
    """The columns: start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch
    records/s."""
    lines = [line for line in text.splitlines() if line.count(",") >= 9]
    if not lines:
        raise ValueError(f"ConsumerPerformance printed no summary: {text[-500:]}")
    columns = [column.strip() for column in lines[-1].split(",")]
    records, fetch_ms = int(columns[4]), int(columns[7])
    return ClientResult(records, fetch_ms / 1e3, None, errors=max(0, wanted - records))


def end_to_end_latency(libraries: Path, bootstrap: str, topic: str, *, records: int, size: int) -> ClientResult:
    """Produces and consumes one record at a time with one Java client; the tool counts whole milliseconds."""
    text = _java(libraries, "EndToEndLatency", bootstrap, topic, str(records), "all", str(size))
    return parse_end_to_end_latency(text, records)


def parse_end_to_end_latency(text: str, records: int) -> ClientResult:
    mean = re.search(r"Avg latency: ([\d.]+) ms", text)
    tail = re.search(r"50th = (\d+), 99th = (\d+), 99\.9th = (\d+)", text)
    if not mean or not tail:
        raise ValueError(f"EndToEndLatency printed no summary: {text[-500:]}")
    p99, p999 = float(tail[2]) * 1e3, float(tail[3]) * 1e3
    # The median of whole milliseconds is always 0 or 1: the mean says more, and is given instead.
    return ClientResult(records, records * float(mean[1]) / 1e3, Latency(float(mean[1]) * 1e3, p99, p999, p999))


def librdkafka(mode: str, bootstrap: str, topic: str, **options: int | str) -> ClientResult:
    """`mode` is produce, sync, transactions or consume; see `librdkafka_client`."""
    arguments = json.dumps({"mode": mode, "bootstrap": bootstrap, "topic": topic, **options})
    done = subprocess.run(
        [sys.executable, "-m", "bench.librdkafka_client", arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ConnectionError(f"the librdkafka client ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    latency = found.get("latency")
    return ClientResult(
        found["records"],
        found["seconds"],
        Latency(**latency) if latency else None,
        found["errors"],
        found.get("busiest_thread"),
        found.get("cpu_seconds"),
    )

"""What a workload works with: the system, topics, request files, the load generator, and measuring around it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench import probes
from bench.admin import create_topics, delete_topics, end_offset
from bench.loadgen import Load, LoadResult, RequestFiles, run_load
from bench.measure import Figures, Latency, Measurement, latencies, rates
from bench.requests import Request
from bench.systems import System

T = TypeVar("T")

OUT, IN = "out", "in"
"""Which way the payload goes: produced, or fetched."""

_topic_numbers = itertools.count(1)


@dataclass(slots=True)
class Run:
    """One turn of one workload on one system."""

    system: System
    files: RequestFiles
    quick: bool
    round: int
    libraries: Path
    """The jars with Kafka's own performance tools."""
    topics: list[str] = field(default_factory=list)
    acknowledged: int = 0
    """Records that the broker acknowledged to the load generator since the last `lost`."""

    def choose(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A new topic, removed when the turn ends."""
        name = f"bench-{next(_topic_numbers)}"
        create_topics(self.system.bootstrap, {name: partitions}, config)
        self.topics.append(name)
        return name

    def drop_topics(self) -> None:
        delete_topics(self.system.bootstrap, self.topics)
        self.topics.clear()

    def requests(self, requests: Iterable[Request]) -> Path:
        return self.files.write(requests)

    def load(self, load: Load) -> LoadResult:
        result = run_load(self.system.port, load, self.system.pids)
        self.acknowledged += result.records_acked
        return result

    def lost(self, topic: str, partitions: int) -> int:
        """How many of the acknowledged records the topic does not hold: a fast broker must also keep them."""
        stored = sum(end_offset(self.system.bootstrap, topic, number) for number in range(partitions))
        acknowledged, self.acknowledged = self.acknowledged, 0
        return max(0, acknowledged - stored)

    def measure(self, case: str, load: Load, payload: str = "") -> Measurement:
        """Runs the load and gives all usual figures of it."""
        pids = self.system.pids
        probes.reset_peak_rss(pids)
        result = self.load(load)
        return load_measurement(case, result, payload, result.round_trip, self.memory())

    def memory(self) -> Figures:
        return {"rss_peak_mb": probes.peak_rss_mb(self.system.pids)}

    def cpu_seconds(self) -> float:
        return probes.cpu_seconds(self.system.pids)


def load_measurement(
    case: str, result: LoadResult, payload: str, latency: Latency | None, memory: Figures
) -> Measurement:
    size = {OUT: result.bytes_out, IN: result.payload_in}.get(payload, 0)
    figures = rates(
        seconds=result.seconds,
        cpu_seconds=result.server_cpu_seconds,
        requests=result.requests,
        records=result.records_acked,
        size=size,
    )
    notes: dict[str, object] = {"client_cpu_share": round(result.client_cpu_seconds / result.seconds, 3)}
    if result.error_codes:
        notes["error_codes"] = result.error_codes
    errors = result.errors
    if payload == IN and result.empty_fetches:
        # An answer with nothing in it is quick to give.
        notes["empty_fetches"] = result.empty_fetches
        errors += result.empty_fetches
    return Measurement(case, {**figures, **latencies(latency), **memory}, errors, notes)

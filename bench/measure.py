"""What one run of one case gave, and how several runs become one line.

Units are in the names. `cost` figures are the broker's CPU time, which survives noise and does not depend on
how fast the client is; rates and latencies are as the client saw them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Figures = dict[str, float]

BETTER_WHEN_HIGHER = frozenset({"mb_per_s", "requests_per_s", "records_per_s", "requests_per_cpu_s"})


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in microseconds."""

    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float

    @staticmethod
    def of(found: Mapping[str, float]) -> Latency | None:
        if not found.get("count"):
            return None
        return Latency(found["p50_us"], found["p99_us"], found["p999_us"], found["max_us"])


@dataclass(frozen=True, slots=True)
class Measurement:
    """One case of one workload, once, on one system."""

    case: str
    figures: Figures
    errors: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    """`unverified` says why the figure may not mean what it seems to."""

    def with_check(self, errors: int, **notes: Any) -> Measurement:
        """The same with what a check after the run found."""
        return Measurement(self.case, self.figures, self.errors + errors, {**self.notes, **notes})

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several rounds, and the lowest and the highest."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        found = sorted(values)
        return Spread(statistics.median(found), found[0], found[-1])


def rates(*, seconds: float, cpu_seconds: float, requests: int = 0, records: int = 0, size: int = 0) -> Figures:
    """Throughput and the broker's cost of it. `size` is the payload in bytes."""
    figures: Figures = {"seconds": seconds, "cpu_seconds": cpu_seconds}
    if requests:
        figures["requests_per_s"] = requests / seconds
        figures["cpu_us_per_request"] = cpu_seconds * 1e6 / requests
        if cpu_seconds:
            figures["requests_per_cpu_s"] = requests / cpu_seconds
    if records:
        figures["records_per_s"] = records / seconds
        figures["cpu_us_per_record"] = cpu_seconds * 1e6 / records
    if size:
        figures["mb_per_s"] = size / seconds / 1e6
        figures["cpu_ms_per_gb"] = cpu_seconds * 1e3 / (size / 1e9)
    return figures


def latencies(latency: Latency | None) -> Figures:
    if latency is None:
        return {}
    return {
        "p50_us": latency.p50_us,
        "p99_us": latency.p99_us,
        "p999_us": latency.p999_us,
        "max_us": latency.max_us,
    }

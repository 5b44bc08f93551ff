"""W18: what exactly once costs a stream of Spark, beside at least once."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench.admin import end_offset
from bench.measure import Figures, Measurement
from bench.registry import workload
from bench.run import Run
from bench.shapes import PARTITIONS
from bench.spark_runs import ROOT, TIMEOUT_S
from bench.workloads.w17_spark import filled_topic

SIZE = 100
VOLUME, QUICK_VOLUME = 200 << 20, 20 << 20
LARGE_BATCHES, SMALL_BATCHES = 20, 50
"""Micro-batches of a run: for rates, and for the latency of small ones."""
SMALL_ROWS = 1_000
DELIVERIES = ("at-least-once", "exactly-once")
REPEATS = 3


@workload("W18", "Spark: a stream exactly once", max_rounds=1, only=("headrace",), in_quick=False)
def delivery_cost(run: Run) -> Iterator[Measurement]:
    """A stream from a topic to another (`local[2]`, eight partitions, 100 B) with `delivery=exactly-once`, and
    beside it, in turn, in the same session, with `at-least-once`: large micro-batches for the rate, batches of a
    thousand rows for the time that each takes. `at least once` figures are the other one's. CPU is that of Spark:
    driver, JVM and Python workers. Medians of three runs."""
    topic, rows = filled_topic(run, SIZE, run.choose(VOLUME, QUICK_VOLUME))
    yield measured(run, "large batches", topic, rows // LARGE_BATCHES, rows)
    small, rows = filled_topic(run, SIZE, SIZE * SMALL_ROWS * SMALL_BATCHES)
    yield measured(run, f"batches of {SMALL_ROWS} rows", small, SMALL_ROWS, rows)


def measured(run: Run, case: str, source: str, rows_per_batch: int, rows: int) -> Measurement:
    targets = {delivery: run.topic(PARTITIONS) for delivery in DELIVERIES}
    spec = {
        "bootstrap": run.system.bootstrap,
        "source": source,
        "targets": targets,
        "rows_per_batch": rows_per_batch,
        "repeats": REPEATS,
    }
    found = run_streams(spec)
    lost = sum(rows - one["rows"] for one in found)
    ends = [end_offset(run.system.bootstrap, targets[DELIVERIES[0]], number) for number in range(PARTITIONS)]
    missing = max(0, rows * (REPEATS + 1) - sum(ends))  # of the one that may write rows twice
    return Measurement(case, figures_of(found), abs(lost) + missing)


def run_streams(spec: dict[str, Any]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "bench.spark_streams", json.dumps(spec)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ValueError(f"Spark ended with {done.returncode}: {done.stderr[-1500:]}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def figures_of(runs: list[dict[str, Any]]) -> Figures:
    figures: Figures = {}
    for delivery, prefix in zip(DELIVERIES, ("at_least_once_", ""), strict=True):
        mine = [one for one in runs if one["delivery"] == delivery]
        batches = [ms for one in mine for ms in one["batch_ms"]]
        figures |= {
            f"{prefix}records_per_s": statistics.median(one["rows"] / one["seconds"] for one in mine),
            f"{prefix}spark_cpu_s_per_million": statistics.median(
                one["cpu_seconds"] / one["rows"] * 1e6 for one in mine
            ),
            f"{prefix}batch_p50_ms": statistics.median(batches),
            f"{prefix}batch_p99_ms": statistics.quantiles(batches, n=100)[98],
        }
    return figures

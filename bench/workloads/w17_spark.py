"""W17: rows through Spark, with our format and with Spark's own connector, on the same broker."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

from bench.loadgen import Load
from bench.measure import Figures, Measurement
from bench.registry import workload
from bench.requests import produce, random_values, values_per_batch
from bench.run import Run
from bench.shapes import KB, PARTITIONS
from bench.spark_runs import ROOT, SparkRuns, run_spark
from headrace.records.builder import NewRecord, build_batch
from headrace.testing.apache_kafka import OracleUnavailable
from headrace.testing.spark_connector import SparkConnector, fetch_connector

SIZES = {"100 B": 100, "1 KB": KB}
READ_BYTES, QUICK_READ_BYTES = {100: 400 << 20, KB: 800 << 20}, 40 << 20
WRITE_BYTES, QUICK_WRITE_BYTES = {100: 150 << 20, KB: 1 << 30}, 20 << 20
"""By size, so that each run takes some seconds: what starts a job of Spark does not count then."""
BATCH_BYTES = 16 * KB
"""As a producer with default settings makes them."""
FORMATS = ("kafka", "headrace")
"""Spark's own connector, and ours."""
REPEATS = 5
WARM_UP_ROWS = 100_000


@workload("W17", "Spark: rows read and written", max_rounds=1, in_quick=False)
def spark_rows(run: Run) -> Iterator[Measurement]:
    """Rows per second through Spark 4.0.0 (`local[2]`, eight partitions) with `format("headrace")`, and beside it,
    in turn, in the same session and on the same broker, with Spark's own `kafka` connector: batch reads of all
    columns and of the value only into the `noop` sink, and batch writes of key and value with default settings.
    `connector` figures are the other one's, `against connector` is ours by theirs. CPU is that of Spark: driver,
    JVM and Python workers. Each figure is the median of five runs, which begin with nothing left to write back to
    the disk and with touched memory; each write goes to a topic of its own, which is removed before the next."""
    connector = find_connector()
    cases = [case for name, size in SIZES.items() for case in cases_of(run, name, size)]
    spec = {
        "bootstrap": run.system.bootstrap,
        "jars": [str(jar) for jar in connector.jars],
        "repeats": REPEATS,
        "cases": cases,
    }
    runs = SparkRuns(run)
    found = run_spark(connector, spec, runs)
    for case in cases:
        mine = [one for one in found if one["case"] == case["name"]]
        notes = {"runs": [one | runs.notes.get(one["topic"], {}) for one in mine]}
        yield Measurement(case["name"], figures_of(mine, case["size"]), lost(mine, runs.stored), notes)


def find_connector() -> SparkConnector:
    try:
        return fetch_connector(ROOT)
    except OracleUnavailable as missing:
        raise ValueError(f"Spark's own connector is not there: {missing}") from missing


def cases_of(run: Run, name: str, size: int) -> Iterator[dict[str, Any]]:
    """Two reads of a topic that is filled now, and a write."""
    topic, rows = filled_topic(run, size, run.choose(READ_BYTES[size], QUICK_READ_BYTES))
    shared = {"formats": FORMATS, "topic": topic, "size": size, "rows": rows, "write": False}
    yield {"name": f"read all columns, {name}", "value_only": False, **shared}
    yield {"name": f"read value only, {name}", "value_only": True, **shared}
    rows = run.choose(WRITE_BYTES[size], QUICK_WRITE_BYTES) // size
    written = {"rows": rows, "warm_up_rows": WARM_UP_ROWS, "write": True}
    yield {"name": f"write, {name}", "formats": FORMATS, "size": size, **written}


def filled_topic(run: Run, size: int, volume: int) -> tuple[str, int]:
    """A topic of about so many bytes, with keys, in batches of 16 KB; and how many records it has."""
    topic = run.topic(PARTITIONS)
    per_batch = values_per_batch(size, BATCH_BYTES)
    values = enumerate(random_values(per_batch, size))
    now_ms = int(time.time() * 1000)  # an old one would be removed by retention
    body = bytes(build_batch(NewRecord(value, b"key-%06d" % number, now_ms) for number, value in values))
    file = run.requests(produce(topic, partition, body) for partition in range(PARTITIONS))
    count = volume // (per_batch * size) // PARTITIONS * PARTITIONS
    result = run.load(Load(file, connections=2, inflight=2, count=count))
    if result.errors or result.requests != count:
        raise ConnectionError(f"filling {topic} gave {result.errors} errors, {result.requests} of {count} batches")
    return topic, count * per_batch


def figures_of(runs: list[dict[str, Any]], size: int) -> Figures:
    """Medians of ours, and of the connector's under names of their own."""
    rates, costs = {}, {}
    for kind in FORMATS:
        mine = [one for one in runs if one["format"] == kind]
        rates[kind] = statistics.median(one["rows"] / one["seconds"] for one in mine)
        costs[kind] = statistics.median(one["cpu_seconds"] / one["rows"] for one in mine) * 1e6
    return {
        "records_per_s": rates["headrace"],
        "mb_per_s": rates["headrace"] * size / 1e6,
        "connector_records_per_s": rates["kafka"],
        "against_connector": rates["headrace"] / rates["kafka"],
        "spark_cpu_s_per_million": costs["headrace"],
        "connector_cpu_s_per_million": costs["kafka"],
    }


def lost(runs: list[dict[str, Any]], stored: Mapping[str, int]) -> int:
    """Rows that were written and are not there, or are there twice."""
    return sum(abs(one["rows"] - stored[one["topic"]]) for one in runs if one["topic"])

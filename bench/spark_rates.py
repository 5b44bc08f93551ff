"""Runs reads and writes through Spark's own `kafka` format and through `headrace`, in turn, in one Spark session.

    python -m bench.spark_rates '{"bootstrap": ..., "jars": [...], "repeats": 3, "cases": [...]}'

A process of its own, in the environment that has Spark's connector; it imports nothing of the benchmark but what
reads the kernel's counters and `spark_pace`, by which the benchmark prepares memory and disk before each run, and
a topic for what it writes: a run that follows five others pays for what they left behind. At the end it prints a
JSON list with one entry per run: case, format, topic, rows, seconds, and the CPU seconds of the driver, the JVM
and all Python workers together.

A read goes to Spark's `noop` sink, after a run that counts rows and bytes and warms everything up. A write takes
rows that Spark makes itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.probes import process_tree
from bench.spark_pace import wait_until_ready

CORES = 2
SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.driver.memory": "2g",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}


def start_spark(jars: list[str]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.Builder().master(f"local[{CORES}]").config("spark.jars", ",".join(jars))
    for name, value in SESSION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def tree_cpu_seconds() -> float:
    """The CPU time of all processes of this run, and of those that they started and that have ended."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0
    for pid in process_tree(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # its parent counts it now
        total += sum(int(number) for number in fields[11:15])
    return total / tick


def read_frame(spark: SparkSession, kind: str, bootstrap: str, case: dict[str, Any]) -> DataFrame:
    """Reads all columns that both formats have, or the value only, which our format can be told in advance."""
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", case["topic"])
    if not case["value_only"]:
        return reader.load()
    if kind == "headrace":
        reader = reader.schema("value binary")
    return reader.load().select("value")


def check_rows(frame: DataFrame, case: dict[str, Any]) -> None:
    found = frame.selectExpr("count(*)", "sum(length(value))").first()
    if found is None or found[0] != case["rows"] or found[1] != case["rows"] * case["size"]:
        raise ValueError(f"{case['name']}: read {found} instead of {case['rows']} rows of {case['size']} bytes")


def written_frame(spark: SparkSession, rows: int, size: int) -> DataFrame:
    text = spark.range(rows, numPartitions=CORES).selectExpr("CAST(id AS STRING) AS key")
    return text.selectExpr("key", f"rpad(key, {size}, 'abcdefghijklmnopqrstuvwxyz') AS value")


def write(frame: DataFrame, kind: str, bootstrap: str, topic: str) -> None:
    writer = frame.write.format(kind).option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    writer.mode("append").save()


def measured(case: dict[str, Any], kind: str, topic: str, work: Callable[[str], None]) -> dict[str, Any]:
    cpu, started = tree_cpu_seconds(), time.perf_counter()
    work(topic)
    seconds = time.perf_counter() - started
    figures = {"rows": case["rows"], "seconds": seconds, "cpu_seconds": tree_cpu_seconds() - cpu}
    return {"case": case["name"], "format": kind, "topic": topic, **figures}


def run_case(spark: SparkSession, bootstrap: str, repeats: int, case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    works = {kind: prepared(spark, bootstrap, kind, case) for kind in case["formats"]}
    for _ in range(repeats):
        for kind, work in works.items():
            topic = wait_until_ready(case["rows"] * case["size"] if case["write"] else 0)
            yield measured(case, kind, topic, work)


def prepared(spark: SparkSession, bootstrap: str, kind: str, case: dict[str, Any]) -> Callable[[str], None]:
    """The work of a case, which is given the topic to write to, after it was done once unmeasured."""
    if case["write"]:
        topic = wait_until_ready(case["warm_up_rows"] * case["size"])
        write(written_frame(spark, case["warm_up_rows"], case["size"]), kind, bootstrap, topic)
        return partial(write, written_frame(spark, case["rows"], case["size"]), kind, bootstrap)
    frame = read_frame(spark, kind, bootstrap, case)
    check_rows(frame, case)
    return lambda _: frame.write.format("noop").mode("overwrite").save()


def main(text: str) -> int:
    spec: dict[str, Any] = json.loads(text)
    spark = start_spark(spec["jars"])
    found = [
        result for case in spec["cases"] for result in run_case(spark, spec["bootstrap"], spec["repeats"], case)
    ]
    spark.stop()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

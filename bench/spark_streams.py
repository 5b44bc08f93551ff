"""Streams from one topic to another through `format("headrace")`, at least once and exactly once, in turn.

    python -m bench.spark_streams '{"bootstrap": ..., "source": ..., "targets": {...}, "rows_per_batch": ...}'

A process of its own, as `spark_rates` is. It prints a JSON list with one entry per run: delivery, rows, seconds,
CPU seconds of driver, JVM and Python workers, and the milliseconds of each micro-batch after the first.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from bench.spark_rates import start_spark, tree_cpu_seconds

STARTS = 5


def run_stream(spark: SparkSession, spec: dict[str, Any], delivery: str) -> dict[str, Any]:
    checkpoint = tempfile.mkdtemp(prefix="bench-stream-")
    rows = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", spec["bootstrap"])
        .option("subscribe", spec["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", spec["rows_per_batch"])
        .load()
        .select("key", "value")
    )
    cpu, began = tree_cpu_seconds(), time.perf_counter()
    query = (
        rows.writeStream.format("headrace")
        .option("kafka.bootstrap.servers", spec["bootstrap"])
        .option("topic", spec["targets"][delivery])
        .option("delivery", delivery)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds, used = time.perf_counter() - began, tree_cpu_seconds() - cpu
    batches = [one for one in query.recentProgress if one["numInputRows"]]
    shutil.rmtree(checkpoint, ignore_errors=True)
    return {
        "delivery": delivery,
        "rows": sum(one["numInputRows"] for one in batches),
        "seconds": seconds,
        "cpu_seconds": used,
        "batch_ms": [one["durationMs"]["triggerExecution"] for one in batches[1:]],
    }


def warm_up(spark: SparkSession, spec: dict[str, Any], delivery: str) -> None:
    """Python may take longer to start than the ten seconds that Spark waits: then once more."""
    for left in reversed(range(STARTS)):
        try:
            run_stream(spark, spec, delivery)
            return
        except StreamingQueryException as error:
            if not left or "failed to connect back" not in str(error):
                raise


def main(text: str) -> int:
    spec: dict[str, Any] = json.loads(text)
    spark = start_spark(spec.get("jars", []))
    for delivery in spec["targets"]:
        warm_up(spark, spec, delivery)
    found = [run_stream(spark, spec, delivery) for _ in range(spec["repeats"]) for delivery in spec["targets"]]
    spark.stop()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Copies one topic to another by a stream of Spark, for as long as it is told to, one case after the other.

    python -m bench.spark_copying '{"bootstrap": ..., "jars": [...]}'

A process of its own, as `spark_rates` is. It reads a line of JSON for each case, `{"format": "headrace", "source":
..., "target": ..., "options": {...}}`, starts the query, says `started` when its first batch is done, and stops it
at the next line. Then it says how many batches there were, and how long they took, as JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.spark_rates import start_spark, tree_cpu_seconds

STARTS = 5
FIRST_BATCH_S = 300.0
POLL_S = 0.1


def started(spark: SparkSession, bootstrap: str, case: dict[str, Any], checkpoint: str) -> StreamingQuery:
    """Python may take longer to start than the ten seconds that Spark waits: then once more."""
    for left in reversed(range(STARTS)):
        query = start(spark, bootstrap, case, checkpoint)
        try:
            await_first_batch(query)
            return query
        except StreamingQueryException as error:
            if not left or "failed to connect back" not in str(error):
                raise
    raise AssertionError("the last start either works or raises")


def start(spark: SparkSession, bootstrap: str, case: dict[str, Any], checkpoint: str) -> StreamingQuery:
    rows = (
        spark.readStream.format(case["format"])
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", case["source"])
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
    )
    writer = rows.writeStream.format(case["format"]).options(**case["options"])
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", case["target"])
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()


def await_first_batch(query: StreamingQuery) -> None:
    give_up_s = time.monotonic() + FIRST_BATCH_S
    while not any(one["numInputRows"] for one in query.recentProgress):
        time.sleep(POLL_S)
        if not query.isActive:
            query.awaitTermination()  # raises the error that ended it
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"no batch within {FIRST_BATCH_S:g} s")


def play(spark: SparkSession, bootstrap: str, lines: Iterator[str], case: dict[str, Any]) -> dict[str, Any]:
    checkpoint = tempfile.mkdtemp(prefix="bench-copying-")
    query = started(spark, bootstrap, case, checkpoint)
    before, cpu = query.lastProgress, tree_cpu_seconds()
    print("started", flush=True)
    next(lines)
    used, after = tree_cpu_seconds() - cpu, query.lastProgress
    batches = [one for one in query.recentProgress if one["numInputRows"]]
    query.stop()
    shutil.rmtree(checkpoint, ignore_errors=True)
    assert before is not None
    assert after is not None
    return {
        "batches": after["batchId"] - before["batchId"],
        "cpu_seconds": used,
        "batch_ms": [one["durationMs"]["triggerExecution"] for one in batches[1:]],
    }


def main(text: str) -> int:
    spec: dict[str, Any] = json.loads(text)
    spark = start_spark(spec["jars"])
    lines = iter(sys.stdin.readline, "")
    for line in lines:
        print(json.dumps(play(spark, spec["bootstrap"], lines, json.loads(line))), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""A Spark driver that copies a topic to another, exactly once; run as a process that may be killed.

    python -m headrace.testing.sink_drills.driver '{"bootstrap": ..., "source": ..., "target": ...}'

It ends with 0 when everything that is in the source is copied, with 3 and a line when the query failed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark.errors import user_message
from headrace.testing.sink_drills.dying import DyingSink

FAILED = 3
STARTS = 10
TOO_SLOW = ("failed to connect back", "Accept timed out", "SocketTimeoutException")
"""What Spark says of a Python process that a busy machine starts too slowly."""
PER_BATCH = 200
PER_ARROW_BATCH = 20
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(PER_ARROW_BATCH),
    "spark.driver.memory": "512m",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}


def make_session(master: str, settings: dict[str, str]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().master(master)
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(DyingSink)
    return spark


def start(spark: SparkSession, spec: dict[str, Any], doom: dict[str, Any]) -> StreamingQuery:
    rows = (
        spark.readStream.format(DyingSink.name())
        .option("kafka.bootstrap.servers", spec["bootstrap"])
        .option("subscribe", spec["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_BATCH)
        .load()
        .select("key", "value")
    )
    return (
        rows.writeStream.format(DyingSink.name())
        .option("kafka.bootstrap.servers", spec["bootstrap"])
        .option("topic", spec["target"])
        .option("checkpointLocation", spec["checkpoint"])
        .option("kafka.delivery.timeout.ms", "240000")
        .option("doom", json.dumps({"group": os.getpgid(0), **doom}))
        .trigger(availableNow=True)
        .start()
    )


def main() -> int:
    spec = json.loads(sys.argv[1])
    spark = make_session(spec["master"], spec.get("settings", {}))
    for doom in spec["dooms"]:
        failure = run_query(spark, spec, doom)
        if failure is not None:  # the one that started us knows what to expect
            print(f"{doom.get('act')} {doom.get('stage')}: {user_message(failure) or failure}", flush=True)
            if doom.get("act") != "raise":
                return FAILED
    spark.stop()
    return 0


def run_query(spark: SparkSession, spec: dict[str, Any], doom: dict[str, Any]) -> PySparkException | None:
    """Why it failed. One whose Python takes longer to start than Spark waits (ten seconds) is started again."""
    for _ in range(STARTS):
        try:
            start(spark, spec, doom).awaitTermination()
        except PySparkException as error:
            failure = error
            if not any(said in str(error) for said in TOO_SLOW):
                break
        else:
            return None
    return failure


if __name__ == "__main__":
    sys.exit(main())

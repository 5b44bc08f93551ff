"""Uses Spark's own `kafka` format, and ours beside it, in the environment that has the connector's jars.

    python connector_driver.py '{"bootstrap": ..., "jars": [...], "topic": ..., "pattern": ..., ...}'

test_spark_kafka_connector runs it, since no other process can have this Spark. Prints what it read, as JSON, by
the name of the step and the format; rows have their bytes as text.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

FORMATS = ("kafka", "headrace")
ROW = (
    "CAST(key AS STRING) AS key",
    "CAST(value AS STRING) AS value",
    "topic",
    "partition",
    "offset",
    "unix_micros(timestamp) AS timestamp",
    "timestampType",
    "to_json(headers) AS headers",
)


def start_spark(jars: list[str]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.Builder().master("local[2]").config("spark.jars", ",".join(jars))
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.driver.host", "localhost").config("spark.driver.bindAddress", "127.0.0.1")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def rows_of(frame: DataFrame) -> list[list[Any]]:
    ordered = frame.selectExpr(*ROW).orderBy("topic", "partition", "offset")
    return [list(row) for row in ordered.collect()]


def stream(spark: SparkSession, kind: str, options: dict[str, str], checkpoint: str) -> list[list[Any]]:
    found: list[list[Any]] = []

    def take(frame: DataFrame, batch: int) -> None:
        found.extend(rows_of(frame))

    reader = spark.readStream.format(kind).options(**options).option("startingOffsets", "earliest")
    writer = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    return sorted(found, key=lambda row: (row[2], row[3], row[4]))


def read_all(spark: SparkSession, spec: dict[str, Any], kind: str) -> dict[str, list[list[Any]]]:
    common = {"kafka.bootstrap.servers": spec["bootstrap"], "includeHeaders": "true"}
    topic, pattern = {**common, "subscribe": spec["topic"]}, {**common, "subscribePattern": spec["pattern"]}
    by_time = {**topic, "startingTimestamp": str(spec["since_ms"])}
    return {
        "batch": rows_of(spark.read.format(kind).options(**topic).load()),
        "pattern": rows_of(spark.read.format(kind).options(**pattern).load()),
        "timestamp": rows_of(spark.read.format(kind).options(**by_time).load()),
        "stream": stream(spark, kind, topic, f"{spec['folder']}/{kind}-read"),
    }


def write_all(spark: SparkSession, spec: dict[str, Any]) -> None:
    """A batch and a stream into a topic, through Spark's own sink."""
    sink = {"kafka.bootstrap.servers": spec["bootstrap"], "topic": spec["sink"], "includeHeaders": "true"}
    headers = "array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers"
    batch = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "concat('batch-', id) AS value", headers)
    batch.write.format("kafka").options(**sink).save()
    source = {"kafka.bootstrap.servers": spec["bootstrap"], "subscribe": spec["topic"]}
    reader = spark.readStream.format("kafka").options(**source).option("startingOffsets", "earliest").load()
    changed = reader.selectExpr("key", "concat('stream-', CAST(value AS STRING)) AS value")
    writer = changed.writeStream.format("kafka").options(**sink)
    writer = writer.option("checkpointLocation", f"{spec['folder']}/write")
    writer.trigger(availableNow=True).start().awaitTermination()


def main(text: str) -> int:
    spec: dict[str, Any] = json.loads(text)
    spark = start_spark(spec["jars"])
    found = {kind: read_all(spark, spec, kind) for kind in FORMATS}
    write_all(spark, spec)
    spark.stop()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Delta tables under real Spark (R-SPK-4): a topic kept as a table, a repeated batch, a table as a source."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import MakeTopic
from tests.spark.pipeline_runs import Runs, lines, objects
from tests.spark.topics import Topics

TIMEOUT_S = 240
ATTEMPTS = 5


def patiently(action: Callable[[], object]) -> None:
    """Again, if Python took longer to start than Spark waits: ten seconds, too few on a busy machine."""
    for _ in range(ATTEMPTS):
        try:
            action()
            return
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError("Python never started in time")


def run(frame: DataFrame, checkpoint: Path, **options: str) -> None:
    """Everything there is, as one batch."""
    writer = frame.writeStream.format("headrace_delta").options(**options).trigger(availableNow=True)

    def once() -> None:
        assert writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(TIMEOUT_S)

    patiently(once)


def column(table: str, name: str) -> list[str]:
    return sorted(pa.table(DeltaTable(table).to_pyarrow_table()).column(name).to_pylist())


def test_a_topic_becomes_a_table_and_the_table_a_stream(
    spark: SparkSession, topics: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, table, checkpoint = make_topic(partitions=2), str(tmp_path / "table"), tmp_path / "checkpoint"
    source = spark.readStream.format("headrace").option("kafka.bootstrap.servers", topics.bootstrap)
    frame = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    rows = frame.selectExpr("CAST(value AS STRING) AS value", "partition", "offset", "timestamp")

    topics.send(topic, [f"a{number}" for number in range(20)], keys=[str(number) for number in range(20)])
    run(rows, checkpoint, path=table, partitionBy="partition")
    topics.send(topic, ["b"])
    run(rows, checkpoint, path=table)
    wanted = sorted([*(f"a{number}" for number in range(20)), "b"])
    assert column(table, "value") == wanted

    # The driver died after it committed to the table, before Spark noted it: the batch is repeated.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run(rows, checkpoint, path=table)
    assert column(table, "value") == wanted

    copy, second = str(tmp_path / "copy"), tmp_path / "second"
    stream = spark.readStream.format("headrace_delta").load(table)
    run(stream, second, path=copy)
    assert column(copy, "value") == wanted, "first the whole table"
    batch = spark.createDataFrame(
        [("c", 0, 7, None)], "value string, partition int, offset long, timestamp timestamp"
    )
    for _ in range(2):
        once = batch.write.format("headrace_delta").option("txnAppId", "me").option("txnVersion", "1")
        patiently(partial(once.mode("append").save, table))
    run(stream, second, path=copy)
    assert column(copy, "value") == sorted([*wanted, "c"]), "then what was added, once"
    found = spark.read.format("headrace_delta").load(table)
    assert found.where("partition = 0 AND offset = 7 AND value = 'c'").count() == 1
    assert found.count() == 22


TO_TABLE = """
sources:
  orders: {{topic: {topic}, format: json, schema: "id bigint, country string"}}
sinks:
  table: {{from: orders, delta: {table}, partition_by: [country]}}
  copy: {{from: orders, topic: {copy}, key: id, create: true}}
"""
FROM_TABLE = """
sources:
  orders: {{files: {table}, format: delta}}
steps:
  - {{name: norwegian, from: orders, filter: country = 'NO'}}
sinks:
  out: {{from: norwegian, topic: {topic}, key: id, create: true}}
"""


def test_a_pipeline_writes_a_table_and_another_reads_it(
    spark: SparkSession, topics: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    runs = Runs(spark, topics.bootstrap, tmp_path)
    topic, copy, out, table = make_topic(), topics.new_name(), topics.new_name(), str(tmp_path / "table")
    to_table = runs.load("to-table", TO_TABLE.format(topic=topic, table=table, copy=copy))
    topics.send(topic, lines(*({"id": number, "country": "NO" if number % 2 else "PE"} for number in range(10))))
    runs.once(to_table)
    topics.send(topic, lines({"id": 11, "country": "NO"}))
    runs.once(to_table)
    assert pa.table(DeltaTable(table).to_pyarrow_table()).num_rows == len(topics.read(copy)) == 11
    assert list(DeltaTable(table).metadata().partition_columns) == ["country"]
    from_table = runs.load("from-table", FROM_TABLE.format(table=table, topic=out))
    for _ in range(2):
        runs.once(from_table)
    assert sorted(row["id"] for row in objects(topics, out)) == [1, 3, 5, 7, 9, 11]
    topics.delete([copy, out])

"""R-SPK-1: `spark.read.format("headrace")` gives what other clients read, from where and as far as it is asked."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.spark.archive import manifest
from headrace.spark.errors import user_message
from tests.processes.spark.archive.archives import archived, make_archive
from tests.spark.conftest import MakeTopic
from tests.spark.test_jobs import patiently
from tests.spark.topics import TIMEOUT_S, Stored, Topics

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01"}
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ARCHIVED = """
    key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>, day STRING
"""
"""As docs/archive.md has it."""


def read(spark: SparkSession, topics: Topics, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("headrace").options(**{"kafka.bootstrap.servers": topics.bootstrap, **options})
    return (reader if schema is None else reader.schema(schema)).load()


def as_stored(row: Any) -> Stored:
    headers = None
    if row.headers is not None:
        headers = tuple((one.key, None if one.value is None else bytes(one.value)) for one in row.headers)
    return Stored(
        row.topic,
        row.partition,
        row.offset,
        None if row.key is None else bytes(row.key),
        None if row.value is None else bytes(row.value),
        row.milliseconds,
        row.timestampType,
        headers,
    )


def all_columns(frame: DataFrame) -> list[Stored]:
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS milliseconds").collect()
    return sorted((as_stored(row) for row in rows), key=lambda one: (one.topic, one.partition, one.offset))


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def failure(frame_or_load: Any) -> str:
    """What a user is told when this is run."""
    with pytest.raises(PySparkException) as caught:
        frame_or_load().collect()
    message = user_message(caught.value)
    assert message is not None, caught.value
    assert "\n" not in message
    assert "Traceback" not in str(caught.value), "a mistake of the user comes without our lines on top"
    return message


def test_every_column_is_what_another_client_reads(
    spark: SparkSession, topics: Topics, make_topic: MakeTopic
) -> None:
    plain = make_topic(partitions=len(CODECS))
    for partition, codec in enumerate(CODECS):
        topics.send(
            plain, ["a" * 300, None, "", "ü"], keys=["k", b"\x00\xff", None, ""], partition=partition, codec=codec
        )
        topics.send(
            plain,
            [f"{codec} {number}" for number in range(500)],
            keys=[str(number) for number in range(500)],
            partition=partition,
            headers=[("one", "1"), ("one", "2"), ("empty", ""), ("null", None), ("bytes", b"\xff\x00")],
            timestamp_ms=1_700_000_000_123 + partition,
            codec=codec,
        )
    appended = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
    topics.send(appended, ["x", "y"], timestamp_ms=1_000)
    expected = topics.read(plain, range(len(CODECS))) + topics.read(appended)
    expected.sort(key=lambda one: (one.topic, one.partition, one.offset))
    assert {one.timestamp_type for one in expected} == {0, 1}

    frame = read(spark, topics, subscribe=f"{plain},{appended}", includeHeaders="true")
    assert all_columns(frame) == expected
    assert read(spark, topics, subscribe=plain).columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType"
    ]  # fmt: skip


def test_the_gaps_of_a_compacted_topic(spark: SparkSession, topics: Topics, make_topic: MakeTopic) -> None:
    table = make_topic(configs=COMPACTED)
    for number in range(4):
        topics.send(table, [f"{number}"] * 9 + [None], keys=[str(key) for key in range(10)])
        time.sleep(0.4)
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while len(stored := topics.read(table)) > 20:
        assert time.monotonic() < deadline, f"{len(stored)} records are left"
        time.sleep(0.2)
    assert stored[0].offset > 0
    assert all_columns(read(spark, topics, subscribe=table, includeHeaders="true")) == stored
    split = read(spark, topics, subscribe=table, includeHeaders="true", minPartitions="7")
    assert all_columns(split) == stored


def test_where_a_batch_starts_and_ends(spark: SparkSession, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic()
    now_ms = time.time_ns() // 1_000_000
    for number in range(10):  # one every hour, the last one now
        topics.send(topic, [str(number)], timestamp_ms=now_ms - (9 - number) * HOUR_MS)

    def found(**options: str) -> list[int]:
        return offsets(read(spark, topics, subscribe=topic, **options))

    at = {"start": now_ms - 5 * HOUR_MS - 1_000, "end": now_ms - 2 * HOUR_MS}
    assert found() == list(range(10))
    assert found(startingOffsets=json.dumps({topic: {"0": 3}}), endingOffsets=json.dumps({topic: {"0": 7}})) == [
        3,
        4,
        5,
        6,
    ]
    assert found(
        startingOffsets=json.dumps({topic: {"0": -2}}), endingOffsets=json.dumps({topic: {"0": -1}})
    ) == list(range(10))
    assert found(startingTimestamp=str(at["start"])) == [4, 5, 6, 7, 8, 9]
    assert found(
        startingOffsetsByTimestamp=json.dumps({topic: {"0": at["start"]}}), endingTimestamp=str(at["end"])
    ) == [4, 5, 6]
    assert found(startingOffsets="-9000s") == [7, 8, 9]
    assert found(startingOffsets="-9000s", endingOffsets="-1800s") == [7, 8]
    assert found(startingTimestamp=str(now_ms + HOUR_MS), startingOffsetsByTimestampStrategy="latest") == []
    assert "startingOffsetsByTimestampStrategy" in failure(
        lambda: read(spark, topics, subscribe=topic, startingTimestamp=str(now_ms + HOUR_MS))
    )

    # Two records that come late: one belongs to the range, one is older than it.
    for hours in (4, 9):
        topics.send(topic, [f"{hours} hours late"], timestamp_ms=now_ms - hours * HOUR_MS)
    times = {"startingTimestamp": str(at["start"]), "endingTimestamp": str(at["end"])}
    assert found(**times) == [4, 5, 6]
    assert found(**times, exactTimestamps="true") == [4, 5, 6, 10]
    values = read(spark, topics, "value BINARY", subscribe=topic, exactTimestamps="true", **times).collect()
    assert sorted(bytes(row.value) for row in values) == [b"4", b"4 hours late", b"5", b"6"]


def test_offsets_that_do_not_exist(spark: SparkSession, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic()
    topics.send(topic, [str(number) for number in range(10)])
    topics.delete_records(topic, 4)
    asked = {"startingOffsets": json.dumps({topic: {"0": 2}}), "endingOffsets": json.dumps({topic: {"0": 99}})}
    began = time.monotonic()
    message = failure(lambda: read(spark, topics, subscribe=topic, **asked))
    assert "Offsets 2 to 98" in message
    assert "holds 4 to 9" in message
    assert time.monotonic() - began < 90, "it waited for records that will not come"
    assert offsets(read(spark, topics, subscribe=topic, failOnDataLoss="false", **asked)) == [4, 5, 6, 7, 8, 9]
    assert offsets(read(spark, topics, subscribe=topic)) == [4, 5, 6, 7, 8, 9]


def test_projection_by_schema(spark: SparkSession, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic()
    topics.send(topic, ["x", "y"], keys=["1", "2"])
    assert read(spark, topics, "value binary", subscribe=topic).columns == ["value"]
    rows = read(spark, topics, "offset bigint, value binary", subscribe=topic).collect()
    assert sorted((row.offset, bytes(row.value)) for row in rows) == [(0, b"x"), (1, b"y")]
    unknown = failure(lambda: read(spark, topics, "offzet bigint", subscribe=topic))
    assert "no column 'offzet'" in unknown
    assert "Did you mean 'offset'?" in unknown
    assert "'value' is binary, not string" in failure(lambda: read(spark, topics, "value string", subscribe=topic))


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_give_the_same_rows_pushed_down_or_not(
    spark: SparkSession, topics: Topics, make_topic: MakeTopic, pushdown: str
) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        for number in range(20):
            topics.send(topic, ["x"], partition=partition, timestamp_ms=1_700_000_000_000 + number * 1000)
    spark.conf.set(PUSHDOWN, pushdown)
    try:
        frame = read(spark, topics, subscribe=topic)
        some = frame.where("partition = 1 AND offset BETWEEN 5 AND 7")
        late = frame.where("timestamp >= timestamp_millis(1700000017000L) AND partition IN (0, 2)")
        none = frame.where(f"topic = '{topic}x'")
        assert sorted((row.partition, row.offset) for row in some.collect()) == [(1, 5), (1, 6), (1, 7)]
        assert sorted((row.partition, row.offset) for row in late.collect()) == [
            (partition, offset) for partition in (0, 2) for offset in (17, 18, 19)
        ]
        assert none.collect() == []
        # What is narrowed is seen in the number of tasks: one for each partition that is left.
        assert some.rdd.getNumPartitions() == (1 if pushdown == "true" else 3)
        assert late.rdd.getNumPartitions() == (2 if pushdown == "true" else 3)
    finally:
        spark.conf.unset(PUSHDOWN)


def test_large_partitions_are_split_into_tasks(spark: SparkSession, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    # Large values: what a record takes in its batch hardly depends on how the client batched.
    topics.send(topic, ["x" * 1_000] * 9_000, partition=0)
    topics.send(topic, ["y"] * 10, partition=1)

    def tasks(**options: str) -> int:
        frame = read(spark, topics, "partition int, offset bigint", subscribe=topic, **options)
        rows = frame.groupBy("partition").agg({"offset": "count", "*": "count"}).collect()
        assert {row.partition: row["count(offset)"] for row in rows} == {0: 9_000, 1: 10}
        return frame.rdd.getNumPartitions()

    assert tasks() == 2
    assert tasks(minPartitions="6") in (6, 7)
    assert tasks(maxRecordsPerPartition="3000") == 4
    assert 8 <= tasks(targetBytesPerTask="1m") <= 14


def test_mistakes_are_named(spark: SparkSession, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic()
    missing = failure(lambda: read(spark, topics, subscribe=f"{topic}x"))
    assert f"Topic {topic}x does not exist" in missing
    assert f"Did you mean {topic}?" in missing
    assert "startingOffset" in failure(lambda: read(spark, topics, subscribe=topic, startingOffset="earliest"))
    assert "subscribe" in failure(lambda: read(spark, topics))
    unreachable = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": topic}
    assert "127.0.0.1:1: nothing listens there" in failure(lambda: read(spark, topics, **unreachable))


def test_no_registration_and_registering_does_no_harm(
    spark: SparkSession, topics: Topics, make_topic: MakeTopic
) -> None:
    from headrace.spark.datasource import HeadraceDataSource

    topic = make_topic()
    topics.send(topic, ["x"])
    assert read(spark, topics, subscribe=topic).count() == 1
    spark.dataSource.register(HeadraceDataSource)
    assert read(spark, topics, subscribe=topic).count() == 1


@pytest.mark.headrace_only
def test_an_archive_reads_as_the_topics_did_and_goes_back_into_one(
    spark: SparkSession, topics: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """R-BEY-3: with Spark's own reader, also a topic whose name is a number, and beside what a kill left."""
    plain, number = make_topic(partitions=2), make_topic(f"0{time.time_ns()}")
    for day in range(2):
        at_ms = 1_700_049_600_123 + day * DAY_MS
        topics.send(
            plain, ["a", None, "c"], keys=["1", "2", "3"], headers=[("h", b"x"), ("h", None)], timestamp_ms=at_ms
        )
        topics.send(plain, ["d"], partition=1, timestamp_ms=at_ms)
    topics.send(number, ["n"])
    store = make_archive(tmp_path, topics.bootstrap, [plain, number], file_bytes=1)
    archived(store, topics.bootstrap)
    store.write(f"{manifest.STAGED}/left.part", b"not committed")
    rows = spark.read.schema(ARCHIVED).parquet(str(tmp_path))
    expected = sorted([*topics.read(plain, range(2)), *topics.read(number)], key=lambda one: one.topic)
    assert all_columns(rows) == expected
    assert all_columns(spark.read.parquet(str(tmp_path)).where(f"topic = '{plain}'")) == [
        one for one in expected if one.topic == plain
    ]
    assert all_columns(rows.where(f"topic = '{plain}' AND day = '2023-11-16'")) == [
        one for one in expected if one.topic == plain and one.timestamp_ms > 1_700_049_600_123
    ]
    copy = make_topic(partitions=2)
    again = rows.where(f"topic = '{plain}'").repartition("partition").sortWithinPartitions("partition", "offset")
    written = again.select("key", "value", "partition", "timestamp", "headers")
    writer = written.write.format("headrace").option("topic", copy)
    writer = writer.option("kafka.bootstrap.servers", topics.bootstrap).option("jobId", f"{copy}/1").mode("append")
    patiently(writer.save)
    assert [replace(one, topic=plain) for one in topics.read(copy, range(2))] == topics.read(plain, range(2))

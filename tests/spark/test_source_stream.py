"""R-SPK-1: `spark.readStream.format("headrace")`: batches, limits, topics that come and go, lag, moving tables.

Most tests run to the end of what is there (AvailableNow) and go on from the same checkpoint afterwards, which is
also a restart each time.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark.errors import user_message
from tests.spark.conftest import MakeTopic
from tests.spark.topics import TIMEOUT_S, Topics

Batch = list[str]


class Streams:
    """Starts queries of one test; what they read is the values of their records, batch by batch."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        self._spark = spark
        self._topics = topics
        self._folder = folder
        self.queries: list[StreamingQuery] = []

    def load(self, schema: str | None = None, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": self._topics.bootstrap, "fetchOffset.numRetries": "0", **options}
        reader = self._spark.readStream.format("headrace").options(**given)
        return (reader if schema is None else reader.schema(schema)).load()

    def start(self, frame: DataFrame, **trigger: Any) -> tuple[StreamingQuery, list[Batch]]:
        batches: list[Batch] = []

        def keep(rows: DataFrame, _: int) -> None:
            batches.append(sorted(row.text for row in rows.collect()))

        writer = frame.writeStream.foreachBatch(keep).option(
            "checkpointLocation", str(self._folder / "checkpoint")
        )
        query = writer.trigger(**trigger).start() if trigger else writer.start()
        self.queries.append(query)
        return query, batches

    def run(self, **options: str) -> list[Batch]:
        """Everything that is there now, in batches; ends then."""
        query, batches = self.start(self.load(**options).selectExpr("string(value) AS text"), availableNow=True)
        assert query.awaitTermination(int(TIMEOUT_S)), "still running"
        return batches

    def failure(self, **options: str) -> str:
        with pytest.raises(PySparkException) as caught:
            self.run(**options)
        message = user_message(caught.value)
        assert message is not None, caught.value
        assert "\n" not in message
        return message


@pytest.fixture
def streams(spark: SparkSession, topics: Topics, tmp_path: Path) -> Iterator[Streams]:
    made = Streams(spark, topics, tmp_path)
    yield made
    for query in made.queries:
        query.stop()


def eventually(what: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.1)


def values(first: int, end: int) -> list[str]:
    return [f"{number:04}" for number in range(first, end)]


def test_limits_and_going_on_from_the_checkpoint(streams: Streams, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    topics.send(topic, values(0, 300), partition=0)
    topics.send(topic, values(300, 400), partition=1)
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupId": f"{topic}-group"}
    batches = streams.run(maxOffsetsPerTrigger="100", **options)
    assert [len(batch) for batch in batches] == [100, 100, 100, 100]
    assert len(set(batches[0]) & set(values(300, 400))) == 25, "shared out by what each partition has"
    assert sorted(itertools.chain(*batches)) == values(0, 400)
    assert (topics.committed(f"{topic}-group", topic), topics.committed(f"{topic}-group", topic, 1)) == (300, 100)

    topics.send(topic, values(400, 410), partition=1)
    assert streams.run(**options) == [values(400, 410)]
    assert streams.run(**options) == [], "nothing new: no batch"
    progress = streams.queries[1].lastProgress
    assert progress is not None
    (source,) = progress["sources"]
    assert json.loads(source["latestOffset"])[topic] == {"0": 300, "1": 110}
    assert source["numInputRows"] == 10


def test_limit_in_bytes(streams: Streams, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for _ in range(10):
        topics.send(topic, ["x" * 1000] * 40)
    batches = streams.run(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="100k")
    assert sum(len(batch) for batch in batches) == 400
    assert 4 <= len(batches) <= 8


def test_latest_is_kept_from_the_first_moment_on(streams: Streams, topics: Topics, make_topic: MakeTopic) -> None:
    """A stream that began at the end, saw nothing and was restarted has not forgotten where it began."""
    topic = make_topic()
    topics.send(topic, ["old"])
    assert streams.run(subscribe=topic) == [[]]
    topics.send(topic, ["new"])
    assert streams.run(subscribe=topic) == [["new"]]


def test_partitions_and_topics_that_appear(streams: Streams, topics: Topics, make_topic: MakeTopic) -> None:
    prefix = topics.new_name("appear")
    first = make_topic(f"{prefix}-one")
    topics.send(first, ["a"])
    options = {"subscribePattern": f"^{prefix}-.*", "startingOffsets": "latest"}
    assert streams.run(**options) == [[]]
    topics.add_partitions(first, 2)
    topics.send(first, ["b"], partition=1)
    second = make_topic(f"{prefix}-two")
    topics.send(second, ["c"])
    assert streams.run(**options) == [["b", "c"]], "what appears is read from its beginning"


def test_a_topic_that_vanishes_and_comes_back(streams: Streams, topics: Topics, make_topic: MakeTopic) -> None:
    kept, doomed = make_topic(), make_topic()
    topics.send(doomed, ["a"])
    options = {"subscribe": f"{kept},{doomed}", "startingOffsets": "earliest"}
    assert streams.run(**options) == [["a"]]
    topics.delete([doomed])
    topics.send(kept, ["b"])
    message = streams.failure(**options)
    assert f"Topic {doomed} is gone" in message
    assert "failOnDataLoss" in message
    topics.create(doomed)
    topics.send(doomed, ["c", "d"])
    assert f"Topic {doomed} was deleted and created again" in streams.failure(**options)
    assert streams.run(failOnDataLoss="false", **options) == [["b", "c", "d"]]
    topics.delete([doomed])
    topics.send(kept, ["e"])
    assert streams.run(failOnDataLoss="false", **options) == [["e"]]


def test_records_that_age_before_they_are_read(streams: Streams, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic()
    topics.send(topic, values(0, 10))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert streams.run(**options) == [values(0, 10)]
    topics.send(topic, values(10, 20))
    topics.delete_records(topic, 15)
    message = streams.failure(**options)
    assert "offset 10 comes next, but the log begins at 15" in message
    assert streams.run(failOnDataLoss="false", **options) == [values(15, 20)]


def test_a_table_in_a_join_follows_its_topic(
    spark: SparkSession, streams: Streams, topics: Topics, make_topic: MakeTopic
) -> None:
    """Spark plans the static side once for the whole query."""
    events, table = make_topic(), make_topic()
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", topics.bootstrap)
    users = (
        reader.option("subscribe", table)
        .load()
        .groupBy("key")
        .agg({"value": "max"})
        .withColumnRenamed("max(value)", "user")
    )
    frame = streams.load(subscribe=events, startingOffsets="earliest").join(users, "key", "left")
    frame = frame.selectExpr("concat(string(value), ' by ', coalesce(string(user), 'nobody')) AS text")
    query, batches = streams.start(frame)

    def answer(event: str) -> list[str]:
        topics.send(events, [event], keys=["k"])
        eventually(lambda: any(event in text for batch in batches for text in batch), f"{event} did not come")
        return [text for batch in batches for text in batch if event in text]

    assert answer("first") == ["first by nobody"], "the table was empty when the query was planned"
    topics.send(table, ["1"], keys=["k"])
    assert answer("second") == ["second by 1"]
    topics.send(table, ["2"], keys=["k"])
    assert answer("third") == ["third by 2"]
    query.stop()


def test_waiting_for_enough(streams: Streams, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic()
    topics.send(topic, ["0"])
    frame = streams.load(
        subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="3", maxTriggerDelay="1h"
    )
    query, batches = streams.start(frame.selectExpr("string(value) AS text"))
    eventually(lambda: batches == [["0"]], "the first batch waits for nothing")
    topics.send(topic, ["1", "2"])
    time.sleep(1.5)
    assert batches == [["0"]]
    topics.send(topic, ["3"])
    eventually(lambda: len(batches) == 2, "three are enough")
    assert batches[1] == ["1", "2", "3"]
    query.stop()


def test_lag_is_seen_by_tools_also_when_idle(streams: Streams, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic()
    group = f"{topic}-lag"
    topics.send(topic, values(0, 5))
    query, batches = streams.start(
        streams.load(subscribe=topic, startingOffsets="earliest", groupId=group).selectExpr(
            "string(value) AS text"
        )
    )
    eventually(lambda: topics.committed(group, topic) == 5, "the last batch is committed without a next one")
    query.stop()
    topics.send(topic, values(5, 12))
    command = [
        sys.executable,
        "-m",
        "headrace",
        "group",
        "describe",
        group,
        "--bootstrap-server",
        topics.bootstrap,
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert shown.returncode == 0, shown.stderr
    row = next(line.split() for line in shown.stdout.splitlines() if topic in line)
    assert row[row.index(topic) :][:5] == [topic, "0", "5", "12", "7"]
    assert batches == [values(0, 5)]


def test_mistakes_in_a_stream_are_named(streams: Streams, topics: Topics, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert f"Topic {topic}x does not exist" in streams.failure(subscribe=f"{topic}x")
    assert "endingOffsets" in streams.failure(subscribe=topic, endingOffsets="latest")
    assert "'value' is binary, not string" in streams.failure(schema="value string", subscribe=topic)
    unreachable = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": topic}
    assert "127.0.0.1:1: nothing listens there" in streams.failure(**unreachable)

"""The sink under real Spark (R-SPK-1): batch and stream, keys, restarts, a broker that goes away, clear errors."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from kafka import KafkaProducer
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark.errors import user_message
from headrace.testing.process import ServerProcess
from headrace.testing.tcp_proxy import CuttingProxy
from tests.conftest import StartBroker
from tests.spark.conftest import MakeTopic
from tests.spark.topics import Topics

HEADERS = "array(named_struct('key', 'h', 'value', binary('x')), named_struct('key', 'n', 'value', binary(NULL)))"
QUERY_TIMEOUT_S = 240


def writer(frame: DataFrame, bootstrap: str, **options: str) -> DataFrameWriter:
    made = frame.write.format("headrace").option("kafka.bootstrap.servers", bootstrap).options(**options)
    return made.mode("append")


def refused(action: Callable[[], object]) -> str:
    """The one line that is left of an error for a user."""
    with pytest.raises(Exception) as caught:  # whatever Spark makes of it
        action()
    message = user_message(caught.value)
    assert message is not None, caught.value
    return message


def test_rows_arrive_as_they_are(spark: SparkSession, topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic(partitions=3)
    frame = spark.range(3000).selectExpr(
        "CAST(id AS STRING) AS key",
        "encode(concat('v', id), 'UTF-8') AS value",
        f"CASE WHEN id % 2 = 0 THEN {HEADERS} END AS headers",
        "CASE WHEN id % 3 = 0 THEN timestamp_millis(1600000000123 + id) END AS timestamp",
        "id AS something_else",
    )
    before_ms = int(time.time() * 1000)
    writer(frame, topics.bootstrap, topic=name, **{"kafka.compression.type": "zstd"}).save()
    records = {int(record.key or b""): record for record in topics.read(name, range(3))}
    assert len(records) == 3000
    for number, record in records.items():
        assert record.value == b"v%d" % number
        assert record.headers == ((("h", b"x"), ("n", None)) if number % 2 == 0 else None)
        if number % 3 == 0:
            assert record.timestamp_ms == 1600000000123 + number
        else:
            assert before_ms <= record.timestamp_ms <= time.time() * 1000


def test_the_same_key_goes_where_other_clients_send_it(
    spark: SparkSession, topics: Topics, make_topic: MakeTopic
) -> None:
    """Text and bytes, empty, and of every length; rows without a key go anywhere, but together."""
    ours, theirs = make_topic(partitions=7), make_topic(partitions=7)
    keys = ["", "a", "ab", "abc", "ä", "日本語", *(f"user-{number}" * (number % 5 + 1) for number in range(150))]
    rows = [(key, "text") for key in keys]
    text = spark.createDataFrame(rows, "key string, value string")
    writer(text, topics.bootstrap, topic=ours).save()
    as_bytes = text.selectExpr("binary(key) AS key", "binary('bytes') AS value")
    writer(as_bytes, topics.bootstrap, topic=ours).save()
    java_like = ck.Producer({"bootstrap.servers": topics.bootstrap, "partitioner": "murmur2_random"})
    python = KafkaProducer(bootstrap_servers=topics.bootstrap)
    for key in keys:
        java_like.produce(theirs, key=key, value="confluent")
        python.send(theirs, key=key.encode(), value=b"kafka-python")
    java_like.flush()
    python.close()
    found = Counter((r.key, r.partition) for name in (ours, theirs) for r in topics.read(name, range(7)))
    assert len(found) == len(keys)
    assert set(found.values()) == {4}


def test_rows_choose_topic_and_partition(spark: SparkSession, topics: Topics, make_topic: MakeTopic) -> None:
    first, second = make_topic(), make_topic(partitions=3)
    frame = spark.range(900).selectExpr(
        f"CASE WHEN id % 3 = 0 THEN '{first}' ELSE '{second}' END AS topic",
        "CASE WHEN id % 3 = 2 THEN 2 END AS partition",
        "CAST(NULL AS STRING) AS key",
        "CAST(id AS STRING) AS value",
    )
    writer(frame, topics.bootstrap).save()
    assert {int(r.value or b"") % 3 for r in topics.read(first)} == {0}
    assert len(topics.read(first)) == 300
    by_number = {int(r.value or b""): r.partition for r in topics.read(second, range(3))}
    assert len(by_number) == 600
    assert all(partition == 2 for number, partition in by_number.items() if number % 3 == 2)


def test_a_users_mistakes_are_one_clear_line(spark: SparkSession, topics: Topics, make_topic: MakeTopic) -> None:
    name = make_topic(configs={"max.message.bytes": "1000"})
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")

    def message(changed: DataFrame = frame, **options: str) -> str:
        return refused(lambda: writer(changed, topics.bootstrap, **{"topic": name, **options}).save())

    assert "cannot be overwritten" in refused(lambda: writer(frame, topics.bootstrap).mode("overwrite").save())
    # Spark itself refuses its default mode, before it asks the format, and says what to write.
    with pytest.raises(AnalysisException, match='use either the "Append"'):
        writer(frame, topics.bootstrap).mode("errorifexists").save()
    assert message(topic="no-such-topic").startswith("the topic 'no-such-topic' does not exist on")
    assert "did you mean kafka.acks?" in message(frame, **{"kafka.ack": "all"})
    assert "'twice' is not a known delivery guarantee" in message(delivery="twice")
    assert "the column 'value' is bigint, and must be string or binary" in message(spark.range(1).toDF("value"))
    no_topic = refused(lambda: writer(frame, topics.bootstrap).save())
    assert no_topic == "no topic to write to: set the option topic, or give the frame a column 'topic'"
    null_topic = frame.withColumn("topic", f.lit(None).cast("string"))
    assert "null in the column 'topic'" in refused(lambda: writer(null_topic, topics.bootstrap).save())
    large = message(spark.sql("SELECT repeat('x', 5000) AS value"))
    assert large.startswith("MESSAGE_TOO_LARGE: a record for partition")
    nowhere = refused(lambda: writer(frame, "127.0.0.1:1", topic=name).save())
    assert nowhere.startswith("cannot reach a broker: 127.0.0.1:1: nothing listens there")


def test_a_stream_goes_on_where_it_stopped(
    spark: SparkSession, topics: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    name = make_topic(partitions=2)
    folder = tmp_path / "in"
    folder.mkdir()

    def add(first: int) -> None:
        rows = "".join(f"{number}\n" for number in range(first, first + 100))
        (folder / f"{first}.txt").write_text(rows)

    def run() -> StreamingQuery:
        stream = spark.readStream.text(str(folder)).selectExpr("value AS key", "value")
        query = (
            stream.writeStream.format("headrace")
            .option("kafka.bootstrap.servers", topics.bootstrap)
            .option("topic", name)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        return query

    add(0)
    progress = run().lastProgress
    assert progress is not None
    assert progress["sink"]["numOutputRows"] == 100
    add(100)
    run()
    run()
    values = sorted(int(record.value or b"") for record in topics.read(name, range(2)))
    assert values == list(range(200))


def test_a_result_that_is_written_whole_each_time(
    spark: SparkSession, topics: Topics, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """The output mode complete appends the whole result, as Spark's own sink does."""
    name = make_topic()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a\nb\na\n")
    counts = spark.readStream.text(str(tmp_path / "in")).groupBy("value").count()
    query = (
        counts.selectExpr("value AS key", "CAST(count AS STRING) AS value")
        .writeStream.format("headrace")
        .outputMode("complete")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert sorted((r.key, r.value) for r in topics.read(name)) == [(b"a", b"2"), (b"b", b"1")]


@pytest.fixture
def shaky(own_broker: StartBroker) -> Iterator[tuple[ServerProcess, CuttingProxy]]:
    """A broker behind a network that cuts connections."""
    with CuttingProxy(seed=3, min_bytes=100_000, max_bytes=400_000) as proxy:
        proxy.cutting = False
        broker = own_broker({"advertised.listeners": f"PLAINTEXT://{proxy.address}"})
        proxy.point_at(broker.bootstrap)
        yield broker, proxy


def test_a_broker_that_is_killed_while_spark_writes(
    spark: SparkSession, shaky: tuple[ServerProcess, CuttingProxy]
) -> None:
    """No row lost, and none twice: Spark runs no task again, and the producer's own retries are recognised."""
    broker, proxy = shaky
    topics = Topics(proxy.address)
    name = topics.create(partitions=2)
    rows = 80_000
    frame = spark.range(0, rows, 1, 2).selectExpr("CAST(id AS STRING) AS key", "repeat(string(id), 8) AS value")
    done = threading.Event()
    restarted = threading.Event()

    def kill_and_start() -> None:
        deadline = time.monotonic() + QUERY_TIMEOUT_S
        while size_on_disk(broker, name) < 100_000 and time.monotonic() < deadline:
            time.sleep(0.005)
        broker.kill()
        broker.start()
        if not done.is_set():
            restarted.set()
        done.wait(QUERY_TIMEOUT_S)  # the broker ends with the thread that started it

    proxy.cutting = True
    killing = threading.Thread(target=kill_and_start)
    killing.start()
    try:
        patient = {"kafka.batch.size": "20000", "kafka.delivery.timeout.ms": "400000"}
        writer(frame, proxy.address, topic=name, **patient).save()
        assert restarted.is_set(), "the broker was to be killed while records were written"
        proxy.cutting = False
        assert proxy.cuts > 0
        keys = [record.key for record in Topics(proxy.address).read(name, range(2))]
    finally:
        done.set()
        killing.join()
    assert len(keys) == rows
    assert len(set(keys)) == rows


def size_on_disk(broker: ServerProcess, name: str) -> int:
    """Bytes of a topic: asking the broker would go through the same network."""
    return sum(path.stat().st_size for path in broker.root.rglob(f"{name}-*/*.log"))

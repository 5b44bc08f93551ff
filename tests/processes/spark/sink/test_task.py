"""What a task makes of its rows, with a real broker and without Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.partitioner import partition_for_key
from headrace.records.compression import Codec
from headrace.spark.arrow.columns import HEADERS_TYPE, TIMESTAMP_ARROW_TYPE
from headrace.spark.sink.columns import sink_columns
from headrace.spark.sink.errors import SinkError, sink_errors
from headrace.spark.sink.options import parse_sink_options
from headrace.spark.sink.task import Written, write_rows
from headrace.testing.raw_client import stored_batches
from tests.spark.topics import Topics
from tests.unit.spark.sink.schemas import HEADERS, schema

TYPES: dict[str, tuple[str, pa.DataType]] = {
    "key": ("string", pa.string()),
    "value": ("string", pa.string()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "headers": (HEADERS, HEADERS_TYPE),
    "timestamp": ("timestamp", TIMESTAMP_ARROW_TYPE),
}


@pytest.fixture(scope="module")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


def write(topics: Topics, batches: Sequence[dict[str, list[Any]]], **given: str) -> Written:
    names = list(batches[0])
    spark_schema = schema(", ".join(f"{name} {TYPES[name][0]}" for name in names))
    arrow = pa.schema([pa.field(name, TYPES[name][1]) for name in names])
    options = parse_sink_options({"kafka.bootstrap.servers": topics.bootstrap, **given})
    with sink_errors(topics.bootstrap):
        return write_rows(
            options,
            sink_columns(spark_schema, options),
            [pa.RecordBatch.from_pydict(batch, schema=arrow) for batch in batches],
        )


def test_rows_arrive_as_they_are(topics: Topics) -> None:
    name = topics.create()
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    before_ms = int(time.time() * 1000)
    written = write(
        topics,
        [
            {
                "key": ["k", None, ""],
                "value": ["v", None, ""],
                "headers": [[{"key": "h", "value": b"\xff"}, {"key": "", "value": None}], None, []],
                "timestamp": [moment, None, moment],
            }
        ],
        topic=name,
    )
    assert (written.rows, written.batches) == (3, 1)
    first, second, third = topics.read(name)
    assert (first.key, first.value) == (b"k", b"v")
    assert first.headers == (("h", b"\xff"), ("", None))
    assert first.timestamp_ms == third.timestamp_ms == int(moment.timestamp() * 1000)
    assert (second.key, second.value, second.headers) == (None, None, None)
    assert before_ms <= second.timestamp_ms <= int(time.time() * 1000)
    assert (third.key, third.value) == (b"", b"")


def test_no_rows_cost_nothing(topics: Topics) -> None:
    assert write(topics, [{"value": []}], topic="no-such-topic") == Written()


def test_keys_choose_the_partition_as_everywhere(topics: Topics) -> None:
    name = topics.create(partitions=5)
    keys = [f"key-{number}" for number in range(200)] + ["", "ä", "日本"]
    write(topics, [{"key": keys, "value": keys}], topic=name)
    found = {record.key: record.partition for record in topics.read(name, range(5))}
    assert found == {key.encode(): partition_for_key(key.encode(), 5) for key in keys}


def test_rows_without_a_key_stay_together_and_take_turns(topics: Topics) -> None:
    name = topics.create(partitions=3)
    write(topics, [{"value": [f"{batch}"] * 10} for batch in range(6)], topic=name)
    records = topics.read(name, range(3))
    assert Counter(record.partition for record in records) == {0: 20, 1: 20, 2: 20}
    assert all(len({r.partition for r in records if r.value == b"%d" % batch}) == 1 for batch in range(6))


def test_a_partition_goes_before_the_key(topics: Topics) -> None:
    name = topics.create(partitions=4)
    write(topics, [{"key": ["a", "a", "a"], "value": ["0", "3", "k"], "partition": [0, 3, None]}], topic=name)
    found = {record.value: record.partition for record in topics.read(name, range(4))}
    assert found == {b"0": 0, b"3": 3, b"k": partition_for_key(b"a", 4)}


@pytest.mark.parametrize("wrong", [2, -1, -7])
def test_a_partition_that_is_not_there(topics: Topics, wrong: int) -> None:
    name = topics.create(partitions=2)
    message = f"the column 'partition' has {wrong}, but topic '{name}' has the partitions 0 to 1"
    with pytest.raises(SinkError, match=message):
        write(topics, [{"value": ["v", "w", "x"], "partition": [0, wrong, None]}], topic=name)


def test_rows_choose_their_topic(topics: Topics) -> None:
    first, second = topics.create(), topics.create(partitions=2)
    rows = {"topic": [first, second, first, second], "key": ["a", "b", "c", "d"], "value": ["1", "2", "3", "4"]}
    assert write(topics, [rows, rows]).rows == 8
    assert [record.value for record in topics.read(first)] == [b"1", b"3"] * 2
    assert sorted(record.value or b"" for record in topics.read(second, range(2))) == [b"2", b"2", b"4", b"4"]


def test_partitions_are_those_of_the_topic_of_a_row(topics: Topics) -> None:
    first, second = topics.create(), topics.create(partitions=3)
    rows: dict[str, list[Any]] = {
        "topic": [first, second, second],
        "partition": [0, 2, 1],
        "value": ["a", "b", "c"],
    }
    write(topics, [rows])
    found = {(r.topic, r.partition, r.value) for r in (*topics.read(first), *topics.read(second, range(3)))}
    assert found == {(first, 0, b"a"), (second, 2, b"b"), (second, 1, b"c")}


def test_topics_are_made_when_asked_for(topics: Topics) -> None:
    names = [topics.new_name(), topics.new_name()]
    settings = {"create.partitions": "3", "create.config.retention.ms": "12345"}
    for _ in range(2):
        write(topics, [{"topic": names, "value": ["a", "b"]}], **settings)
    assert all(len(topics.read(name, range(3))) == 2 for name in names)


def test_the_option_goes_before_the_column(topics: Topics) -> None:
    name = topics.create()
    write(topics, [{"topic": ["elsewhere", None], "value": ["v", "w"]}], topic=name)
    assert [record.value for record in topics.read(name)] == [b"v", b"w"]


def test_a_row_without_a_topic(topics: Topics) -> None:
    name = topics.create()
    with pytest.raises(
        SinkError, match="a row has a null in the column 'topic': fill or filter it, or set the option"
    ):
        write(topics, [{"topic": [name, None], "value": ["v", "w"]}])


def test_a_topic_that_is_not_there_is_not_created(topics: Topics) -> None:
    with pytest.raises(SinkError, match=r"the topic 'no-such-topic' does not exist on .*: create it first"):
        write(topics, [{"topic": ["no-such-topic"], "value": ["v"]}])
    assert "no-such-topic" not in topics.admin.list_topics(timeout=60).topics


def test_order_within_a_partition_is_that_of_the_rows(topics: Topics) -> None:
    name = topics.create(partitions=2)
    values = [f"{number}" for number in range(5000)]
    write(
        topics,
        [{"key": [f"{int(v) % 7}" for v in values], "value": values}] * 2,
        topic=name,
        **{"kafka.batch.size": "5000"},
    )
    for partition in range(2):
        numbers = [int(record.value or b"") for record in topics.read(name, [partition])]
        half = len(numbers) // 2
        assert numbers[:half] == sorted(numbers[:half]) == numbers[half:]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed(topics: Topics, codec: str) -> None:
    name = topics.create()
    write(topics, [{"value": ["compress me " * 100] * 50}], topic=name, **{"kafka.compression.type": codec})
    assert [record.value for record in topics.read(name)] == [b"compress me " * 100] * 50
    assert {batch.codec for batch in stored_batches(topics.bootstrap, name)} == {Codec[codec.upper()]}


def test_a_record_that_is_too_large(topics: Topics) -> None:
    name = topics.create(configs={"max.message.bytes": "1000"})
    with pytest.raises(SinkError, match=f"MESSAGE_TOO_LARGE: a record for partition {name}-0 makes a batch of"):
        write(topics, [{"value": ["fits", "x" * 3000]}], topic=name)


def test_a_topic_with_small_batches(topics: Topics) -> None:
    name = topics.create(configs={"max.message.bytes": "3000"})
    values = [f"{number:0100}" for number in range(1000)]
    write(topics, [{"value": values}, {"value": values}], topic=name)
    assert [record.value for record in topics.read(name)] == [value.encode() for value in values] * 2


def test_an_unreachable_broker() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.request.timeout.ms": "200"}
    with pytest.raises(SinkError, match=r"cannot reach a broker: 127.0.0.1:1: nothing listens there"):
        write(Topics("127.0.0.1:1"), [{"value": ["v"]}], topic="t", **options)

"""R-CON-1, R-CON-4: reading from anywhere: seek, offsets by time, pause and resume, long polls, both ends.

Consumer groups have their own tests; here every consumer is assigned its partitions by hand.
"""

from __future__ import annotations

import asyncio
import threading
import time

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import OffsetOutOfRangeError as AioOutOfRange
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import OffsetOutOfRangeError

from headrace.testing.raw_client import FetchLimits, RawClient
from tests.compat.clients import Confluent, Record, Settings, confluent_consumer, poll_confluent, poll_kafka_python
from tests.compat.confluent_admin import AdminClient
from tests.compat.conftest import MakeTopic

START_MS = 1_700_000_000_000
OFFSET_OUT_OF_RANGE = 1


def fill(bootstrap: str, topic: str, count: int = 100, partition: int = 0) -> None:
    """Record number n has the value n and the time START_MS + 1000 n."""
    records = [Record(b"%d" % n, timestamp_ms=START_MS + 1000 * n, partition=partition) for n in range(count)]
    Confluent().produce(bootstrap, topic, records, Settings(batch_bytes=500, linger_ms=0))


def values(messages: list[ck.Message]) -> list[int]:
    return [int(message.value() or b"-1") for message in messages]


def test_confluent_seek(bootstrap: str, topic: str) -> None:
    """R-CON-4."""
    fill(bootstrap, topic)
    consumer = confluent_consumer(bootstrap)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    assert values(poll_confluent(consumer, 3)) == [0, 1, 2]
    for target in (90, 10, 0, 99):
        consumer.seek(ck.TopicPartition(topic, 0, target))
        assert values(poll_confluent(consumer, 1)) == [target]
    consumer.close()


def test_kafka_python_seek(bootstrap: str, topic: str) -> None:
    """R-CON-4."""
    fill(bootstrap, topic)
    target = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    consumer.assign([target])
    consumer.seek(target, 95)
    assert [one.offset for one in poll_kafka_python(consumer, 5)] == [95, 96, 97, 98, 99]
    consumer.seek_to_beginning(target)
    assert poll_kafka_python(consumer, 1)[0].offset == 0
    consumer.seek_to_end(target)
    assert consumer.position(target) == 100
    consumer.close()


def test_aiokafka_seek(bootstrap: str, topic: str) -> None:
    """R-CON-4."""
    fill(bootstrap, topic)
    target = AioPartition(topic, 0)

    async def read() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
            consumer.assign([target])
            for offset in (50, 3, 99):
                consumer.seek(target, offset)
                assert (await consumer.getone()).offset == offset
            await consumer.seek_to_beginning(target)
            assert (await consumer.getone()).offset == 0
            await consumer.seek_to_end(target)
            assert await consumer.position(target) == 100

    asyncio.run(read())


TIMES = [
    (START_MS - 5_000, 0),
    (START_MS, 0),
    (START_MS + 1, 1),
    (START_MS + 41_500, 42),
    (START_MS + 99_000, 99),
]


def test_confluent_offsets_by_time(bootstrap: str, topic: str) -> None:
    """R-CON-4: the first record at or after the time; the end when there is none."""
    fill(bootstrap, topic)
    consumer = confluent_consumer(bootstrap)
    for time_ms, offset in TIMES:
        (found,) = consumer.offsets_for_times([ck.TopicPartition(topic, 0, time_ms)], timeout=60)
        assert found.offset == offset
    (found,) = consumer.offsets_for_times([ck.TopicPartition(topic, 0, START_MS + 99_001)], timeout=60)
    assert found.offset == ck.OFFSET_END
    consumer.close()


def test_kafka_python_offsets_by_time(bootstrap: str, topic: str) -> None:
    """R-CON-4: answered with the record's own time."""
    fill(bootstrap, topic)
    target = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    # A consumer that has not heard of the topic yet answers None for every time.
    assert consumer.partitions_for_topic(topic) == {0}
    for time_ms, offset in TIMES:
        found = consumer.offsets_for_times({target: time_ms})[target]
        assert found is not None
        assert (found.offset, found.timestamp) == (offset, START_MS + 1000 * offset)
    assert consumer.offsets_for_times({target: START_MS + 99_001})[target] is None
    consumer.close()


def test_aiokafka_offsets_by_time(bootstrap: str, topic: str) -> None:
    """R-CON-4."""
    fill(bootstrap, topic)
    target = AioPartition(topic, 0)

    async def look() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            for time_ms, offset in TIMES:
                found = (await consumer.offsets_for_times({target: time_ms}))[target]
                assert found is not None
                assert (found.offset, found.timestamp) == (offset, START_MS + 1000 * offset)
            assert (await consumer.offsets_for_times({target: START_MS + 99_001}))[target] is None

    asyncio.run(look())


def test_offsets_by_time_inside_a_compressed_batch(bootstrap: str, topic: str) -> None:
    """R-CON-4: the record inside the batch is found, not the batch's first one."""
    records = [Record(b"%d" % n, timestamp_ms=START_MS + 1000 * n) for n in range(100)]
    Confluent().produce(bootstrap, topic, records, Settings("zstd", linger_ms=200, batch_bytes=1_000_000))
    consumer = confluent_consumer(bootstrap)
    (found,) = consumer.offsets_for_times([ck.TopicPartition(topic, 0, START_MS + 57_000)], timeout=60)
    consumer.close()
    assert found.offset == 57


def test_offsets_by_time_with_times_out_of_order(bootstrap: str, topic: str) -> None:
    """The first offset in the log whose time is not before the one asked for, though later ones are."""
    times = [5, 1, 9, 2, 9, 3]
    for number in times:
        Confluent().produce(bootstrap, topic, [Record(b"v", timestamp_ms=START_MS + number)])
    consumer = confluent_consumer(bootstrap)
    wanted = {1: 0, 5: 0, 6: 2, 9: 2, 10: ck.OFFSET_END}
    for number, offset in wanted.items():
        (found,) = consumer.offsets_for_times([ck.TopicPartition(topic, 0, START_MS + number)], timeout=60)
        assert found.offset == offset, number
    consumer.close()


def test_beginning_and_end(bootstrap: str, make_topic: MakeTopic) -> None:
    """Earliest and latest of several partitions, an empty one among them, through each client."""
    name = make_topic(3)
    fill(bootstrap, name, 10, partition=0)
    fill(bootstrap, name, 20, partition=2)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partitions = [TopicPartition(name, number) for number in range(3)]
    assert list(consumer.beginning_offsets(partitions).values()) == [0, 0, 0]
    assert [consumer.end_offsets(partitions)[one] for one in partitions] == [10, 0, 20]
    consumer.close()
    rdkafka = confluent_consumer(bootstrap)
    assert [rdkafka.get_watermark_offsets(ck.TopicPartition(name, n), timeout=60) for n in range(3)] == [
        (0, 10),
        (0, 0),
        (0, 20),
    ]
    rdkafka.close()


def test_confluent_pause_resume(bootstrap: str, make_topic: MakeTopic) -> None:
    """R-CON-4: a paused partition is silent while the other goes on, and loses nothing."""
    name = make_topic(2)
    fill(bootstrap, name, 50, partition=0)
    fill(bootstrap, name, 50, partition=1)
    consumer = confluent_consumer(bootstrap)
    quiet = ck.TopicPartition(name, 0)
    consumer.assign([ck.TopicPartition(name, 0, 0), ck.TopicPartition(name, 1, 0)])
    consumer.pause([quiet])
    read = poll_confluent(consumer, 50)
    assert {message.partition() for message in read} == {1}
    assert consumer.poll(0.3) is None
    consumer.resume([quiet])
    assert values(poll_confluent(consumer, 50)) == list(range(50))
    consumer.close()


def test_kafka_python_pause_resume(bootstrap: str, make_topic: MakeTopic) -> None:
    """R-CON-4."""
    name = make_topic(2)
    fill(bootstrap, name, 50, partition=0)
    fill(bootstrap, name, 50, partition=1)
    quiet, loud = TopicPartition(name, 0), TopicPartition(name, 1)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100)
    consumer.assign([quiet, loud])
    consumer.pause(quiet)
    assert {one.partition for one in poll_kafka_python(consumer, 50)} == {1}
    assert consumer.poll(timeout_ms=300) == {}
    consumer.resume(quiet)
    assert [one.offset for one in poll_kafka_python(consumer, 50)] == list(range(50))
    consumer.close()


def test_aiokafka_pause_resume(bootstrap: str, make_topic: MakeTopic) -> None:
    """R-CON-4."""
    name = make_topic(2)
    fill(bootstrap, name, 20, partition=0)
    fill(bootstrap, name, 20, partition=1)
    quiet, loud = AioPartition(name, 0), AioPartition(name, 1)

    async def read() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        async with consumer, asyncio.timeout(60):
            consumer.assign([quiet, loud])
            consumer.pause(quiet)
            assert {(await consumer.getone()).partition for _ in range(20)} == {1}
            consumer.resume(quiet)
            assert [(await consumer.getone()).offset for _ in range(20)] == list(range(20))

    asyncio.run(read())


def test_from_latest_sees_only_what_comes_after(bootstrap: str, topic: str) -> None:
    """When the consumer learns where the end is cannot be seen from outside: records come until one is read."""
    fill(bootstrap, topic, 10)
    consumer = confluent_consumer(bootstrap)
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_END)])
    message = consumer.poll(0.3)
    for number in range(100, 150):
        if message is not None:
            break
        Confluent().produce(bootstrap, topic, [Record(b"%d" % number)])
        message = consumer.poll(0.5)
    consumer.close()
    assert message is not None
    assert values([message])[0] >= 100


def test_long_poll_ends_when_data_comes(bootstrap: str, topic: str) -> None:
    """R-CON-1: a waiting Fetch is answered when a record is appended, long before its time is up."""
    writer = threading.Timer(0.5, lambda: Confluent().produce(bootstrap, topic, [Record(b"v")]))
    with RawClient(bootstrap, timeout_s=90) as raw:
        writer.start()
        began = time.monotonic()
        answer = raw.fetch(topic, 0, 0, FetchLimits(max_wait_ms=60_000))
        took = time.monotonic() - began
    writer.join()
    assert len(answer.batches) == 1
    assert took < 50


def test_long_poll_ends_when_its_time_is_up(bootstrap: str, topic: str) -> None:
    """R-CON-1: nothing came: an empty answer after max_wait_ms, not before."""
    with RawClient(bootstrap) as raw:
        began = time.monotonic()
        answer = raw.fetch(topic, 0, 0, FetchLimits(max_wait_ms=400))
        took = time.monotonic() - began
    assert (answer.error, answer.records) == (0, b"")
    assert took >= 0.39


def test_long_poll_waits_for_min_bytes(bootstrap: str, topic: str) -> None:
    """R-CON-1: less than min_bytes waits for the time; then what there is comes."""
    Confluent().produce(bootstrap, topic, [Record(b"small")])
    with RawClient(bootstrap) as raw:
        began = time.monotonic()
        answer = raw.fetch(topic, 0, 0, FetchLimits(max_wait_ms=400, min_bytes=100_000))
        took = time.monotonic() - began
    assert len(answer.batches) == 1
    assert took >= 0.39


def test_a_long_poll_does_not_hold_up_other_connections(bootstrap: str, topic: str) -> None:
    with RawClient(bootstrap, timeout_s=90) as waiting, RawClient(bootstrap, timeout_s=90) as other:
        waiter = threading.Thread(target=lambda: waiting.fetch(topic, 0, 0, FetchLimits(max_wait_ms=60_000)))
        waiter.start()
        time.sleep(0.1)
        for _ in range(20):
            other.api_versions()
        assert waiter.is_alive()
        Confluent().produce(bootstrap, topic, [Record(b"enough")])
        waiter.join()


def test_reading_at_the_end_is_no_error(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 10)
    with RawClient(bootstrap) as raw:
        answer = raw.fetch(topic, 0, 10)
    assert (answer.error, answer.high_watermark, answer.log_start_offset) == (0, 10, 0)
    assert answer.records == b""


@pytest.mark.parametrize("offset", [11, 10_000, 2**62])
def test_reading_past_the_end_is_out_of_range(bootstrap: str, topic: str, offset: int) -> None:
    fill(bootstrap, topic, 10)
    with RawClient(bootstrap) as raw:
        assert raw.fetch(topic, 0, offset).error == OFFSET_OUT_OF_RANGE


def test_reading_below_the_start_is_out_of_range(bootstrap: str, topic: str, admin: AdminClient) -> None:
    fill(bootstrap, topic, 10)
    for future in admin.delete_records([ck.TopicPartition(topic, 0, 6)]).values():
        assert future.result(60).low_watermark == 6
    with RawClient(bootstrap) as raw:
        assert raw.fetch(topic, 0, 5).error == OFFSET_OUT_OF_RANGE
        assert raw.fetch(topic, 0, 6).log_start_offset == 6


def test_confluent_reset_policies(bootstrap: str, topic: str) -> None:
    """auto.offset.reset after OFFSET_OUT_OF_RANGE: back to the start, or an error to the application."""
    fill(bootstrap, topic, 10)
    earliest = confluent_consumer(bootstrap)
    earliest.assign([ck.TopicPartition(topic, 0, 5_000)])
    assert values(poll_confluent(earliest, 10)) == list(range(10))
    earliest.close()
    strict = confluent_consumer(bootstrap, auto_offset_reset="error")
    strict.assign([ck.TopicPartition(topic, 0, 5_000)])
    message = strict.poll(60)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == ck.KafkaError._AUTO_OFFSET_RESET
    strict.close()


def test_kafka_python_reset_policies(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 10)
    target = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([target])
    consumer.seek(target, 5_000)
    assert [one.offset for one in poll_kafka_python(consumer, 10)] == list(range(10))
    consumer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none", enable_auto_commit=False)
    consumer.assign([target])
    consumer.seek(target, 5_000)
    with pytest.raises(OffsetOutOfRangeError):
        poll_kafka_python(consumer, 1)
    consumer.close()


def test_aiokafka_reset_policies(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 10)
    target = AioPartition(topic, 0)

    async def read(policy: str) -> int:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset=policy, enable_auto_commit=False
        )
        async with consumer, asyncio.timeout(60):
            consumer.assign([target])
            consumer.seek(target, 5_000)
            return (await consumer.getone()).offset

    assert asyncio.run(read("earliest")) == 0
    with pytest.raises(AioOutOfRange):
        asyncio.run(read("none"))


def test_several_consumers_read_the_same(bootstrap: str, make_topic: MakeTopic) -> None:
    """Readers do not disturb each other; each has its own position."""
    name = make_topic(2)
    fill(bootstrap, name, 200, partition=0)
    fill(bootstrap, name, 200, partition=1)
    consumers = [confluent_consumer(bootstrap) for _ in range(5)]
    for consumer in consumers:
        consumer.assign([ck.TopicPartition(name, 0, 0), ck.TopicPartition(name, 1, 0)])
    for consumer in consumers:
        read = poll_confluent(consumer, 400)
        for partition in range(2):
            assert values([one for one in read if one.partition() == partition]) == list(range(200))
        consumer.close()

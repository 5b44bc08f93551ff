"""The Python clients behind one small interface, so that one test runs with each of them.

Only what every client can do is here; what is particular to one is tested with that client directly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import confluent_kafka as ck
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError as KafkaPythonError

TIMEOUT_S = 60.0
ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class ProduceFailed(Exception):
    """The client reported an error for a record; `code` is Kafka's error code, None for the client's own."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int
    timestamp_type: int
    """0 is the time the client gave, 1 the time the broker appended."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to produce."""

    codec: str = "none"
    acks: int = -1
    idempotent: bool = False
    linger_ms: int = 5
    batch_bytes: int = 16_384
    max_request_bytes: int = 1_000_000


class Client(Protocol):
    name: str
    java_partitioner: bool
    """Whether it picks a key's partition as the Java client does, when asked to."""

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], settings: Settings | None = None
    ) -> list[tuple[int, int]]:
        """Partition and offset of every record, in order; the offset is -1 with acks=0."""

    def read(self, bootstrap: str, topic: str, partition: int, count: int, offset: int = 0) -> list[Stored]:
        """The next `count` records from `offset` on."""


class Confluent:
    name = "confluent"
    java_partitioner = True

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], settings: Settings | None = None
    ) -> list[tuple[int, int]]:
        chosen = settings or Settings()
        producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": chosen.codec,
                "acks": chosen.acks,
                "enable.idempotence": chosen.idempotent,
                "linger.ms": chosen.linger_ms,
                "batch.size": chosen.batch_bytes,
                "message.max.bytes": chosen.max_request_bytes,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
                "partitioner": "murmur2_random",
            }
        )
        placed: dict[int, tuple[int, int]] = {}
        errors: list[ck.KafkaError] = []
        for index, record in enumerate(records):
            self._send(producer, topic, record, index, placed, errors)
        assert producer.flush(TIMEOUT_S) == 0, "not everything was answered in time"
        if errors:
            raise ProduceFailed(errors[0].code(), errors[0].str())
        return [placed[index] for index in range(len(records))]

    def _send(
        self,
        producer: ck.Producer,
        topic: str,
        record: Record,
        index: int,
        placed: dict[int, tuple[int, int]],
        errors: list[ck.KafkaError],
    ) -> None:
        def on_delivery(error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                placed[index] = (message.partition() or 0, message.offset() or 0)

        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=-1 if record.partition is None else record.partition,
            timestamp=record.timestamp_ms or 0,
            on_delivery=on_delivery,
        )
        producer.poll(0)

    def read(self, bootstrap: str, topic: str, partition: int, count: int, offset: int = 0) -> list[Stored]:
        consumer = confluent_consumer(bootstrap)
        try:
            consumer.assign([ck.TopicPartition(topic, partition, offset)])
            return [to_stored(message) for message in poll_confluent(consumer, count)]
        finally:
            consumer.close()


def confluent_consumer(bootstrap: str, **settings: str | int | bool) -> ck.Consumer:
    """A consumer for manual assignment (librdkafka wants a group's name all the same)."""
    return ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "check.crcs": True,
            "allow.auto.create.topics": True,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def poll_confluent(consumer: ck.Consumer, count: int, timeout_s: float = TIMEOUT_S) -> list[ck.Message]:
    """Exactly `count` messages, or a failure."""
    messages: list[ck.Message] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count:
        message = consumer.poll(0.2)
        if message is None:
            assert time.monotonic() < deadline, f"{len(messages)} of {count} records after {timeout_s} s"
            continue
        error = message.error()
        if error is not None:
            raise ck.KafkaException(error)
        messages.append(message)
    return messages


def to_stored(message: ck.Message) -> Stored:
    kind, time_ms = message.timestamp()
    pairs = message.headers() or []
    assert isinstance(pairs, list)
    headers = tuple((name, as_bytes(value)) for name, value in pairs)
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Stored(partition, offset, message.key(), message.value(), headers, time_ms, kind - 1)


def as_bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


class KafkaPython:
    name = "kafka-python"
    java_partitioner = True

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], settings: Settings | None = None
    ) -> list[tuple[int, int]]:
        chosen = settings or Settings()
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if chosen.codec == "none" else chosen.codec,
            acks="all" if chosen.acks == -1 else chosen.acks,
            enable_idempotence=chosen.idempotent,
            linger_ms=chosen.linger_ms,
            batch_size=chosen.batch_bytes,
            max_request_size=chosen.max_request_bytes,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            results = [future.get(TIMEOUT_S) for future in sent]
        except KafkaPythonError as failure:
            raise ProduceFailed(getattr(failure, "errno", None), str(failure)) from failure
        finally:
            producer.close()
        return [(result.partition, result.offset) for result in results]

    def read(self, bootstrap: str, topic: str, partition: int, count: int, offset: int = 0) -> list[Stored]:
        target = TopicPartition(topic, partition)
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, fetch_max_wait_ms=100)
        try:
            consumer.assign([target])
            consumer.seek(target, offset)
            return poll_kafka_python(consumer, count)
        finally:
            consumer.close()


def poll_kafka_python(consumer: KafkaConsumer, count: int, timeout_s: float = TIMEOUT_S) -> list[Stored]:
    found: list[Stored] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records after {timeout_s} s"
        for messages in consumer.poll(timeout_ms=200, max_records=count - len(found)).values():
            for one in messages:
                found.append(
                    Stored(
                        one.partition,
                        one.offset,
                        one.key,
                        one.value,
                        tuple(one.headers),
                        one.timestamp,
                        one.timestamp_type,
                    )
                )
    return found


class Aiokafka:
    name = "aiokafka"
    java_partitioner = True

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], settings: Settings | None = None
    ) -> list[tuple[int, int]]:
        return asyncio.run(self._produce(bootstrap, topic, records, settings or Settings()))

    async def _produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], chosen: Settings
    ) -> list[tuple[int, int]]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if chosen.codec == "none" else chosen.codec,
            acks="all" if chosen.acks == -1 else chosen.acks,
            enable_idempotence=chosen.idempotent,
            linger_ms=chosen.linger_ms,
            max_batch_size=chosen.batch_bytes,
            max_request_size=chosen.max_request_bytes,
        )
        try:
            async with producer, asyncio.timeout(TIMEOUT_S):
                sent = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                results = [await future for future in sent]
        except AioError as failure:
            raise ProduceFailed(getattr(failure, "errno", None), str(failure)) from failure
        # With acks=0 there is nothing to tell where a record went.
        return [(-1, -1) if result is None else (result.partition, result.offset) for result in results]

    def read(self, bootstrap: str, topic: str, partition: int, count: int, offset: int = 0) -> list[Stored]:
        return asyncio.run(self._read(bootstrap, topic, partition, count, offset))

    async def _read(self, bootstrap: str, topic: str, partition: int, count: int, offset: int) -> list[Stored]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, fetch_max_wait_ms=100)
        target = AioPartition(topic, partition)
        async with consumer, asyncio.timeout(TIMEOUT_S):
            consumer.assign([target])
            consumer.seek(target, offset)
            found: list[Stored] = []
            while len(found) < count:
                one = await consumer.getone()
                found.append(
                    Stored(
                        one.partition,
                        one.offset,
                        one.key,
                        one.value,
                        tuple(one.headers),
                        one.timestamp,
                        one.timestamp_type,
                    )
                )
        return found


CLIENTS: tuple[Client, ...] = (Confluent(), KafkaPython(), Aiokafka())

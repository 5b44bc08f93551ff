"""Topics for the tests with Spark, made, filled and read with confluent-kafka."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import confluent_kafka as ck

from headrace.testing.raw_client import FetchLimits, RawClient
from tests.compat.confluent_admin import AdminClient, ConfigEntry, ConfigResource, NewPartitions, NewTopic

TIMEOUT_S = 300.0
POLL_S = 0.05
ANY_PARTITION = -1
FIRST_PARTITION = 0
NOW = 0
NO_WAIT = FetchLimits(max_wait_ms=0, min_bytes=0)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as the other client reads it; headers are None when it has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.admin = AdminClient(self._settings)

    def new_name(self, prefix: str = "t") -> str:
        return f"{prefix}-{os.getpid()}-{time.time_ns() // 1_000_000}-{next(_numbers)}"

    def create(
        self, name: str | None = None, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        name = name or self.new_name()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        self.admin.create_topics([topic])[name].result(TIMEOUT_S)
        self._wait_until_served(name, range(partitions))
        return name

    def exists(self, name: str) -> bool:
        return name in self.admin.list_topics(timeout=TIMEOUT_S).topics

    def add_partitions(self, name: str, count: int) -> None:
        before = len(self.admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions)
        self.admin.create_partitions([NewPartitions(name, count)])[name].result(TIMEOUT_S)
        self._wait_until_served(name, range(before, count))

    def delete(self, names: Sequence[str], *, must_exist: bool = True) -> None:
        for future in self.admin.delete_topics(list(names)).values() if names else ():
            error = future.exception(TIMEOUT_S)
            if error is not None and must_exist:
                raise error
        deadline = time.monotonic() + TIMEOUT_S
        while set(names) & set(self.admin.list_topics(timeout=TIMEOUT_S).topics):
            assert time.monotonic() < deadline, f"{names} are still there"
            time.sleep(POLL_S)

    def send(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        partition: int | None = None,
        headers: list[tuple[str, str | bytes | None]] | None = None,
        timestamp_ms: int | None = None,
        codec: str = "none",
    ) -> None:
        """Without a partition: by key, as the client does it, or the first, so that nothing depends on chance."""
        producer = ck.Producer({**self._settings, "compression.type": codec, "linger.ms": 5})
        for index, value in enumerate(values):
            key = None if keys is None else keys[index]
            usual = FIRST_PARTITION if key is None else ANY_PARTITION
            producer.produce(
                topic,
                value=value,
                key=key,
                headers=headers,
                partition=usual if partition is None else partition,
                timestamp=timestamp_ms or NOW,
                on_delivery=_check,
            )
        assert producer.flush(TIMEOUT_S) == 0

    def read(self, topic: str, partitions: Iterable[int] = (0,)) -> list[Stored]:
        """Everything in the partitions, sorted; of one that is written all the time, up to its end at the call."""
        consumer = ck.Consumer({**self._settings, "group.id": "nobody", "enable.partition.eof": True})
        try:
            return self._read(consumer, [ck.TopicPartition(topic, partition) for partition in partitions])
        finally:
            consumer.close()

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = ck.Consumer({**self._settings, "group.id": "nobody"})
        try:
            low, high = consumer.get_watermark_offsets(ck.TopicPartition(topic, partition), timeout=TIMEOUT_S)
            return low, high
        finally:
            consumer.close()

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """As retention does: the log begins at `before`."""
        wanted = ck.TopicPartition(topic, partition, before)
        for future in self.admin.delete_records([wanted]).values():
            future.result(TIMEOUT_S)

    def config(self, topic: str, name: str) -> str:
        wanted = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found: Mapping[str, ConfigEntry] = self.admin.describe_configs([wanted])[wanted].result(TIMEOUT_S)
        return str(found[name].value)

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        consumer = ck.Consumer({**self._settings, "group.id": group})
        try:
            (found,) = consumer.committed([ck.TopicPartition(topic, partition)], timeout=TIMEOUT_S)
            return None if found.offset < 0 else found.offset
        finally:
            consumer.close()

    def _read(self, consumer: ck.Consumer, places: Sequence[ck.TopicPartition]) -> list[Stored]:
        found: dict[int, list[Stored]] = {place.partition: [] for place in places}
        ends: dict[int, int] = {}
        for place in places:
            place.offset, high = consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)
            if place.offset < high:
                ends[place.partition] = high
        consumer.assign([place for place in places if place.partition in ends])
        deadline = time.monotonic() + TIMEOUT_S
        while ends:
            assert time.monotonic() < deadline, f"{places} were not read up to {ends}"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            assert partition is not None
            if error is not None:
                assert error.code() == ck.KafkaError._PARTITION_EOF, error
                ends.pop(partition, None)
            elif partition in ends:
                stored = _stored(message)
                if stored.offset < ends[partition]:
                    found[partition].append(stored)
                if stored.offset + 1 >= ends[partition]:
                    del ends[partition]
        return [stored for place in places for stored in found[place.partition]]

    def _wait_until_served(self, name: str, partitions: Iterable[int]) -> None:
        """Kafka answers before the leaders have taken their partitions over."""
        deadline = time.monotonic() + TIMEOUT_S
        with RawClient(self.bootstrap) as raw:
            for partition in partitions:
                while (error := raw.fetch(name, partition, 0, NO_WAIT).error) != 0:
                    assert time.monotonic() < deadline, f"{name}-{partition} was not ready: error {error}"
                    time.sleep(POLL_S)


def _check(error: ck.KafkaError | None, message: ck.Message) -> None:
    assert error is None, error


def _stored(message: ck.Message) -> Stored:
    kind, timestamp_ms = message.timestamp()
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = message.headers()
    return Stored(
        topic,
        partition,
        offset,
        message.key(),
        message.value(),
        timestamp_ms,
        0 if kind == ck.TIMESTAMP_CREATE_TIME else 1,
        tuple(headers) if headers else None,  # type: ignore[arg-type]
    )

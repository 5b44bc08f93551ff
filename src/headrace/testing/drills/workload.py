"""The load of a drill: idempotent producers and a reader with librdkafka; at the end everything is read."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from headrace.testing.history import UNKNOWN_OFFSET, Ack, History, value_of
from headrace.testing.process_cluster import wait_until

TOPIC = "drill"
PARTITIONS = 6
REPLICATION = 3
SECONDS_PER_RECORD = 0.002
FLUSH_SECONDS = 120.0
CLOSE_SECONDS = 30.0
READ_AT_ONCE = 500
READ_SECONDS = 0.05
QUIET = {"log_level": 0}
IMPATIENT: dict[str, Any] = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    **QUIET,
}
"""Short pauses, so that gaps are the cluster's and not the client's."""


def create_topic(bootstrap: str, brokers: int, configs: Mapping[str, str]) -> None:
    """Create the topic once all brokers are there."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    deadline = time.monotonic() + 60
    while len(admin.list_topics(timeout=30).brokers) < brokers and time.monotonic() < deadline:
        time.sleep(0.1)
    create(bootstrap, TOPIC, PARTITIONS, configs)


def create(bootstrap: str, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    topic = NewTopic(name, partitions, REPLICATION, config={"min.insync.replicas": "2", **configs})
    for future in admin.create_topics([topic], operation_timeout=30).values():
        future.result()


def alter_topic(bootstrap: str, configs: Mapping[str, str]) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for future in admin.incremental_alter_configs([resource], request_timeout=30).values():
        future.result()


@dataclass(frozen=True, slots=True)
class PartitionState:
    leader: int
    in_sync: tuple[int, ...]


def states(bootstrap: str) -> dict[int, PartitionState]:
    from confluent_kafka.admin import AdminClient

    metadata = AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(TOPIC, timeout=30)
    partitions = metadata.topics[TOPIC].partitions
    return {index: PartitionState(one.leader, tuple(sorted(one.isrs))) for index, one in partitions.items()}


@dataclass(slots=True)
class Workload:
    """Producers and a reader in threads while the block lasts; afterwards everything they sent is decided."""

    bootstrap: str
    producers: int = 2
    settings: dict[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)
    ack_times: list[tuple[float, int]] = field(default_factory=list)
    """(when, partition), in order."""
    read_times: list[tuple[float, int]] = field(default_factory=list)
    """(when, how many records together), in order."""
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _held: threading.Event = field(default_factory=threading.Event)
    _idle: set[threading.Thread] = field(default_factory=set)
    """Producers that were held and have nothing in flight."""
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._threads = [
            threading.Thread(target=self._produce, args=(n,), daemon=True) for n in range(self.producers)
        ]
        self._threads.append(threading.Thread(target=self._read, daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()

    def rest(self) -> None:
        """Stop sending, and wait until everything that was sent is decided.

        What the reader has read is noted; its client is only given time to close. librdkafka (2.16) can lock
        itself up if a broker is lost while it handles the answer to an OffsetForLeaderEpoch: then close() never
        returns.
        """
        self._stop.set()
        *producers, reader = self._threads
        for thread in producers:
            thread.join()
        reader.join(CLOSE_SECONDS)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let everything that was sent be decided, and send nothing more in this block."""
        self._idle.clear()
        self._held.set()
        try:
            wait_until(
                lambda: len(self._idle) == self.producers, "producers have nothing under way", FLUSH_SECONDS
            )
            yield
        finally:
            self._held.clear()

    @property
    def acked(self) -> int:
        return len(self.ack_times)

    def acked_by_partition(self) -> Counter[int]:
        return Counter(partition for _, partition in list(self.ack_times))

    def _produce(self, number: int) -> None:
        """Produce; after a fatal error with a producer of another number: the drill must come to its verdict."""
        from confluent_kafka import KafkaException

        while not self._stop.is_set():
            try:
                self._produce_as(number)
            except KafkaException as error:
                self.failures.append(f"producer {number} gave up: {error}")
            number += self.producers

    def _produce_as(self, number: int) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": int(FLUSH_SECONDS * 1000),
                **IMPATIENT,
                **self.settings,
            }
        )
        count = 0
        while not self._stop.is_set():
            producer.produce(TOPIC, value_of(number, count), partition=count % PARTITIONS, on_delivery=self._told)
            count += 1
            producer.poll(0)
            time.sleep(SECONDS_PER_RECORD)
            while self._held.is_set() and not self._stop.is_set():
                producer.poll(0.01)
                if not len(producer):
                    self._idle.add(threading.current_thread())
        # Not `flush`: with a fatal error pending it keeps calling `_told`, in the middle of the exception.
        deadline = time.monotonic() + FLUSH_SECONDS
        while len(producer) and time.monotonic() < deadline:
            producer.poll(0.1)

    def _read(self) -> None:
        """Read all partitions as their records come."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "drill-tail",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                **IMPATIENT,
            }
        )
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        try:
            while not self._stop.is_set():
                found = [one for one in consumer.consume(READ_AT_ONCE, READ_SECONDS) if one.error() is None]
                if found:
                    self.read_times.append((time.monotonic(), len(found)))
                for message in found:
                    offset, value = message.offset(), message.value()
                    self.history.note_seen(message.partition() or 0, offset or 0, value or b"")
        finally:
            consumer.close()

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        self.ack_times.append((time.monotonic(), message.partition()))
        offset = message.offset()
        # librdkafka concludes from a later ack that a batch is there whose own answer was lost, and not where.
        self.history.acks.append(
            Ack(message.partition(), UNKNOWN_OFFSET if offset is None else offset, message.value())
        )

    def longest_gap(self, since: float, until: float) -> float:
        """The longest time in a span without an ack on any one partition, in seconds."""
        return max(self.gaps(since, until).values())

    def gaps(self, since: float, until: float) -> dict[int, float]:
        """The longest time without an ack that began in a span of time, for each partition."""
        acks = list(self.ack_times)
        longest = {}
        for partition in range(PARTITIONS):
            times = [when for when, of in acks if of == partition and when >= since]
            spans = pairwise([since, *times]) if times else [(since, until)]
            longest[partition] = max((end - begin for begin, end in spans if begin <= until), default=0.0)
        return longest


def read_everything(bootstrap: str, history: History) -> dict[int, int]:
    """Read all partitions to their ends; returns where each ended."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "drill-reader", "enable.auto.commit": False, **QUIET}
    )
    ends = {}
    try:
        for partition in range(PARTITIONS):
            low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=60)
            consumer.assign([TopicPartition(TOPIC, partition, low)])
            position, ends[partition] = low, high
            while position < high:
                message = consumer.poll(60)
                assert message is not None, f"nothing more to read of {partition} at {position} of {high}"
                offset, value = message.offset(), message.value()
                if message.error() is None and offset is not None and value is not None:
                    history.note_read(partition, offset, value)
                    position = offset + 1
    finally:
        consumer.close()
    return ends

"""Members of groups behind one small interface, so that one test runs with each client and both protocols."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import aiokafka
import confluent_kafka as ck
import kafka
from kafka.errors import KafkaError as KafkaPythonError

TIMEOUT_S = 60.0
POLL_S = 0.02
KAFKA_PYTHON_POLL_MS = 100
REFRESH_MS = 200
HEARTBEAT_MS = 100

Place = tuple[str, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Got:
    topic: str
    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Membership:
    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    reset: str = "earliest"
    auto_commit: bool = False
    instance_id: str | None = None
    cooperative: bool = False
    session_ms: int = 30_000
    """Long, so that a busy machine ends no session; those that are to end say so."""
    commit_on_revoke: bool = False


class Member(Protocol):
    assigned: list[set[Place]]
    """What each call of the rebalance callback brought, in order."""
    revoked: list[set[Place]]

    def poll(self) -> list[Got]: ...
    def assignment(self) -> set[Place]: ...
    def commit(self, offsets: dict[Place, int] | None = None) -> None:
        """Waits for the answer; without offsets, everything that was polled."""

    def commit_async(self) -> None: ...
    def committed(self, topic: str, partition: int) -> int | None: ...
    def seek(self, topic: str, partition: int, offset: int) -> None: ...
    def close(self) -> None: ...


class Confluent:
    protocol = "classic"

    def __init__(self, bootstrap: str, membership: Membership) -> None:
        self.assigned: list[set[Place]] = []
        self.revoked: list[set[Place]] = []
        self.lost: list[set[Place]] = []
        self._commit_on_revoke = membership.commit_on_revoke
        self._positions: dict[Place, int] = {}
        self.failures: list[str] = []
        self._consumer = ck.Consumer(self._settings(bootstrap, membership))
        topics = list(membership.topics) if membership.pattern is None else [membership.pattern]
        self._consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _settings(self, bootstrap: str, membership: Membership) -> dict[str, str | int | float | bool]:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": membership.group,
            "group.protocol": self.protocol,
            "auto.offset.reset": "error" if membership.reset == "none" else membership.reset,
            "enable.auto.commit": membership.auto_commit,
            "auto.commit.interval.ms": 100,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "fetch.wait.max.ms": 50,
            "retry.backoff.ms": 50,
            "log_level": 2,
        }
        if self.protocol == "classic":
            settings["session.timeout.ms"] = membership.session_ms
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
            if membership.cooperative:
                settings["partition.assignment.strategy"] = "cooperative-sticky"
        if membership.instance_id is not None:
            settings["group.instance.id"] = membership.instance_id
        return settings

    def _on_assign(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.assigned.append(_places(partitions))

    def _on_revoke(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.revoked.append(_places(partitions))
        given_up = {place: position for place, position in self._positions.items() if place in self.revoked[-1]}
        if self._commit_on_revoke and given_up:
            try:
                self.commit(given_up)
            except ck.KafkaException as error:
                self.failures.append(str(error))

    def _on_lost(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.lost.append(_places(partitions))

    def poll(self) -> list[Got]:
        got = []
        for message in self._consumer.consume(100, timeout=POLL_S):
            error = message.error()
            if error is None:
                topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
                self._positions[topic, partition] = offset + 1
                got.append(Got(topic, partition, offset, message.value() or b""))
            elif error.code() not in (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_TOPIC):
                raise ck.KafkaException(error)
        return got

    def assignment(self) -> set[Place]:
        return _places(self._consumer.assignment())

    def commit(self, offsets: dict[Place, int] | None = None) -> None:
        if offsets is None:
            self._consumer.commit(asynchronous=False)
            return
        places = [ck.TopicPartition(*place, offset) for place, offset in offsets.items()]
        for result in self._consumer.commit(offsets=places, asynchronous=False) or []:
            if result.error is not None:
                raise ck.KafkaException(result.error)

    def commit_async(self) -> None:
        self._consumer.commit(asynchronous=True)

    def committed(self, topic: str, partition: int) -> int | None:
        (found,) = self._consumer.committed([ck.TopicPartition(topic, partition)], timeout=TIMEOUT_S)
        return None if found.offset == ck.OFFSET_INVALID else int(found.offset)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(ck.TopicPartition(topic, partition, offset))

    def close(self) -> None:
        self._consumer.close()


class ConfluentConsumerProtocol(Confluent):
    """KIP-848."""

    protocol = "consumer"


def _places(partitions: Iterable[Any]) -> set[Place]:
    return {(one.topic, one.partition) for one in partitions}


class KafkaPython:
    """Polls in a thread of its own: a member that is polled in turn with others gives its joins up half-way."""

    def __init__(self, bootstrap: str, membership: Membership) -> None:
        self.assigned: list[set[Place]] = []
        self.revoked: list[set[Place]] = []
        self._commit_on_revoke = membership.commit_on_revoke
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=membership.group,
            group_instance_id=membership.instance_id,
            auto_offset_reset=membership.reset,
            # Its callbacks may not commit, but it does so itself before it gives partitions up.
            enable_auto_commit=membership.auto_commit or membership.commit_on_revoke,
            auto_commit_interval_ms=100 if membership.auto_commit else 60_000,
            session_timeout_ms=membership.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=REFRESH_MS,
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
        )
        _remember_joins(self._consumer)
        listener = _KafkaPythonListener(self)
        if membership.pattern is not None:
            self._consumer.subscribe(pattern=membership.pattern, listener=listener)
        else:
            self._consumer.subscribe(list(membership.topics), listener=listener)
        self._got: queue.SimpleQueue[Got] = queue.SimpleQueue()
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._failure: KafkaPythonError | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        while not self._closing:
            while not self._work.empty():
                work, result = self._work.get()
                try:
                    result.set_result(work())
                except KafkaPythonError as error:
                    result.set_exception(error)
            try:
                polled = self._consumer.poll(timeout_ms=KAFKA_PYTHON_POLL_MS)
            except KafkaPythonError as error:
                self._failure = error
                return
            for one in (record for many in polled.values() for record in many):
                self._got.put(Got(one.topic, one.partition, one.offset, one.value or b""))

    def _do(self, work: Callable[[], T]) -> T:
        """In the thread, between two polls: the consumer is not for two threads."""
        result: Future[T] = Future()
        self._work.put((work, result))
        return result.result(TIMEOUT_S)

    def poll(self) -> list[Got]:
        time.sleep(POLL_S)
        if self._failure is not None:
            raise self._failure
        return [self._got.get() for _ in range(self._got.qsize())]

    def assignment(self) -> set[Place]:
        return _places(self._consumer.assignment())

    def commit(self, offsets: dict[Place, int] | None = None) -> None:
        if offsets is None:
            self._do(self._consumer.commit)
            return
        named = {
            kafka.TopicPartition(*place): kafka.OffsetAndMetadata(at, "", -1) for place, at in offsets.items()
        }
        self._do(lambda: self._consumer.commit(named))

    def commit_async(self) -> None:
        self._do(self._consumer.commit_async)

    def committed(self, topic: str, partition: int) -> int | None:
        return self._do(lambda: self._consumer.committed(kafka.TopicPartition(topic, partition)))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._do(lambda: self._consumer.seek(kafka.TopicPartition(topic, partition), offset))

    def close(self) -> None:
        self._closing = True
        self._thread.join(TIMEOUT_S)
        self._consumer.close(autocommit=self._commit_on_revoke)


def _remember_joins(consumer: kafka.KafkaConsumer) -> None:
    """kafka-python 3.0 forgets its assignment when a poll ends between the answers to its join and its sync."""
    coordinator = consumer._coordinator
    need_rejoin = coordinator.need_rejoin
    coordinator.need_rejoin = lambda: need_rejoin() or coordinator._join_task is not None


class _KafkaPythonListener(kafka.ConsumerRebalanceListener):
    def __init__(self, member: KafkaPython) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: set[kafka.TopicPartition]) -> None:
        self._member.revoked.append(_places(revoked))

    def on_partitions_assigned(self, assigned: set[kafka.TopicPartition]) -> None:
        self._member.assigned.append(_places(assigned))


class _Loop:
    """One event loop in a thread for all members: their heartbeats go on while a test does something else."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)


_loop = _Loop()


class AioKafka:
    def __init__(self, bootstrap: str, membership: Membership) -> None:
        self.assigned: list[set[Place]] = []
        self.revoked: list[set[Place]] = []
        self._commit_on_revoke = membership.commit_on_revoke
        self.consumer = _loop.run(self._start(bootstrap, membership))

    async def _start(self, bootstrap: str, membership: Membership) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=membership.group,
            group_instance_id=membership.instance_id,
            auto_offset_reset=membership.reset,
            enable_auto_commit=membership.auto_commit,
            auto_commit_interval_ms=100,
            session_timeout_ms=membership.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=REFRESH_MS,
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
        )
        self.consumer = consumer
        listener = _AioListener(self, membership.commit_on_revoke)
        if membership.pattern is not None:
            consumer.subscribe(pattern=membership.pattern, listener=listener)
        else:
            consumer.subscribe(list(membership.topics), listener=listener)
        await consumer.start()
        return consumer

    def poll(self) -> list[Got]:
        found = _loop.run(self.consumer.getmany(timeout_ms=int(POLL_S * 1000))).values()
        return [Got(one.topic, one.partition, one.offset, one.value or b"") for many in found for one in many]

    def assignment(self) -> set[Place]:
        return _places(self.consumer.assignment())

    def commit(self, offsets: dict[Place, int] | None = None) -> None:
        named = None
        if offsets is not None:
            named = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        _loop.run(self.consumer.commit(named))

    def commit_async(self) -> None:
        asyncio.run_coroutine_threadsafe(self.consumer.commit(), _loop._loop)

    def committed(self, topic: str, partition: int) -> int | None:
        return _loop.run(self.consumer.committed(aiokafka.TopicPartition(topic, partition)))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.consumer.seek(aiokafka.TopicPartition(topic, partition), offset)

    def close(self) -> None:
        try:
            if self._commit_on_revoke and self.assignment():
                self.commit()  # it calls nobody back when it stops
        finally:
            _loop.run(self.consumer.stop())


class _AioListener(aiokafka.ConsumerRebalanceListener):
    def __init__(self, member: AioKafka, commit_on_revoke: bool) -> None:
        self._member = member
        self._commit_on_revoke = commit_on_revoke

    async def on_partitions_revoked(self, revoked: set[aiokafka.TopicPartition]) -> None:
        self._member.revoked.append(_places(revoked))
        if self._commit_on_revoke and revoked:
            await self._member.consumer.commit()

    async def on_partitions_assigned(self, assigned: set[aiokafka.TopicPartition]) -> None:
        self._member.assigned.append(_places(assigned))


MakeMember = Callable[[str, Membership], Member]
MEMBERS: dict[str, MakeMember] = {
    "confluent": Confluent,
    "confluent-kip848": ConfluentConsumerProtocol,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}


def poll_until(members: Sequence[Member], done: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> list[Got]:
    """Let all of them live until the condition holds; what they read meanwhile."""
    got: list[Got] = []
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen; assignments: {[member.assignment() for member in members]}")
        for member in members:
            got += member.poll()
    return got


def poll_count(members: Sequence[Member], count: int) -> list[Got]:
    """Until they have read so many records together."""
    got: list[Got] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(got) < count:
        if time.monotonic() > deadline:
            raise AssertionError(f"{len(got)} of {count} records; {[member.assignment() for member in members]}")
        for member in members:
            got += member.poll()
    return got


def all_places(topic: str, count: int) -> set[Place]:
    return {(topic, partition) for partition in range(count)}


def shared_out(members: Sequence[Member], places: set[Place]) -> bool:
    """Each place has one owner and every member has its fair share."""
    owned = [member.assignment() for member in members]
    sizes = [len(one) for one in owned]
    return set().union(*owned) == places and sum(sizes) == len(places) and max(sizes) - min(sizes) <= 1

"""Transactions whose coordinator is killed at each of their steps, producers that never come back, and zombies.

Each transaction has one record in every partition of a topic, and a position of a group. At the end a reader of
committed records finds all of a transaction if its commit was confirmed, nothing if it was aborted, never a part.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.services.groups.hashing import partition_of
from headrace.testing.drills.scene import HEAL_SECONDS, Scene, repeat
from headrace.testing.drills.workload import IMPATIENT, QUIET
from headrace.testing.process_cluster import wait_until

TOPIC = "transfers"
PARTITIONS = 3
STATE_TOPIC = "__transaction_state"
GROUP = "transfers"
TIMEOUT_MS = 10_000
"""The timeout of transactions that are left open."""
GRACE_SECONDS = 15.0
"""The additional time until nothing is open any more."""
REQUEST_SECONDS = 60.0
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


def _admin(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})


def _ends(bootstrap: str, committed: bool) -> list[int]:
    """The last stable offsets or the high watermarks of all partitions, once their leaders report them."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
    from confluent_kafka.admin._listoffsets import OffsetSpec

    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    latest: Any = OffsetSpec.latest  # it has no types
    asked = {TopicPartition(TOPIC, number): latest() for number in range(PARTITIONS)}
    admin = _admin(bootstrap)
    ends: list[int] = []

    def are_known() -> bool:
        found = admin.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_SECONDS)
        try:
            ends[:] = [int(future.result().offset) for future in found.values()]
        except KafkaException:
            return False
        return True

    wait_until(are_known, "the ends of partitions", HEAL_SECONDS)
    return ends


@dataclass(slots=True)
class Transfers:
    scene: Scene
    outcomes: dict[int, str] = field(default_factory=dict)
    """Outcomes, by the number of the transaction."""
    left: list[Any] = field(default_factory=list)
    """Producers that never end their transactions."""
    position: int = 0
    """The last transaction that was certainly committed."""

    def create(self) -> None:
        from confluent_kafka.cimpl import NewTopic

        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin = _admin(self.scene.bootstrap)
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result()

    def producer(self, name: str, timeout_ms: int = 60_000) -> Any:
        from confluent_kafka import Producer

        settings = {"transactional.id": name, "transaction.timeout.ms": timeout_ms, "linger.ms": 0}
        made = Producer({"bootstrap.servers": self.scene.cluster.bootstrap, **IMPATIENT, **settings})
        made.init_transactions(REQUEST_SECONDS)
        return made

    def write(self, producer: Any) -> int:
        """Begin a transaction, and have its records stored; returns its number."""
        number = len(self.outcomes) + 1
        self.outcomes[number] = UNKNOWN
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"%d" % number, partition=partition)
        producer.flush(REQUEST_SECONDS)
        return number

    def send_position(self, producer: Any, number: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.scene.cluster.bootstrap, "group.id": GROUP, **QUIET})
        places = [TopicPartition(TOPIC, 0, number)]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), REQUEST_SECONDS)
        consumer.close()

    def end(self, producer: Any, number: int, commit: bool, with_position: bool = False) -> None:
        """End a transaction. If the client does not know the outcome, it stays unknown."""
        from confluent_kafka import KafkaException

        try:
            (producer.commit_transaction if commit else producer.abort_transaction)(REQUEST_SECONDS)
        except KafkaException as error:
            self.scene.notes.append(f"transaction {number}: {error.args[0]}")
            return
        self.outcomes[number] = COMMITTED if commit else ABORTED
        if commit and with_position:
            self.position = number

    # -- faults

    def coordinator(self, name: str) -> int:
        """The broker that coordinates a transactional id."""

        def leader() -> int:
            metadata = _admin(self.scene.bootstrap).list_topics(STATE_TOPIC, timeout=30)
            partitions = metadata.topics[STATE_TOPIC].partitions
            found = partitions.get(partition_of(name, len(partitions) or 1))
            return -1 if found is None else int(found.leader)

        wait_until(lambda: leader() >= 0 and self.scene.brokers[leader()].running, "a coordinator", HEAL_SECONDS)
        return leader()

    def kill_coordinator(self, name: str, when: str) -> None:
        self.kill(self.coordinator(name), when)

    def kill(self, broker_id: int, when: str) -> None:
        broker = self.scene.brokers[broker_id]
        self.scene.note_fault(f"kill -9 coordinator {broker.broker_id} {when}")
        broker.kill()

    def heal(self) -> None:
        for broker in self.scene.brokers.values():
            if not broker.running:
                broker.start()
        self.scene.note_event("back")
        self.scene.until_whole()

    def until_nothing_is_open(self, since: float, timeout_s: float) -> None:
        """Wait until the last stable offset is the high watermark again, in time."""
        deadline = since + timeout_s + GRACE_SECONDS
        while _ends(self.scene.bootstrap, True) != _ends(self.scene.bootstrap, False):
            if time.monotonic() > deadline:
                ends = _ends(self.scene.bootstrap, True), _ends(self.scene.bootstrap, False)
                self.scene.check(False, f"a transaction hangs: last stable offsets and ends are {ends}")
                return
            time.sleep(0.2)

    # -- the end

    def look(self) -> None:
        """Check that nothing is torn, nothing confirmed is missing, and nothing aborted is there."""
        found = [Counter(values) for values in _committed(self.scene.bootstrap)]
        for number, outcome in self.outcomes.items():
            counts = [values[b"%d" % number] for values in found]
            expected = {COMMITTED: [[1] * PARTITIONS], ABORTED: [[0] * PARTITIONS]}.get(
                outcome, [[1] * PARTITIONS, [0] * PARTITIONS]
            )
            self.scene.check(counts in expected, f"transaction {number} ({outcome}) is there {counts} times")
        stored = self._stored_position()
        self.scene.check(
            stored == self.position or self.outcomes.get(stored) == UNKNOWN,
            f"the group's position is {stored}, {self.position} was committed last",
        )
        self.scene.notes.append(f"transactions: {dict(Counter(self.outcomes.values()))}")

    def _stored_position(self) -> int:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.scene.bootstrap, "group.id": GROUP, **QUIET})
        try:
            return int(consumer.committed([TopicPartition(TOPIC, 0)], timeout=REQUEST_SECONDS)[0].offset)
        finally:
            consumer.close()


def _committed(bootstrap: str) -> list[list[bytes]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "look", "enable.auto.commit": False, **QUIET})
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    ends = _ends(bootstrap, True)

    def is_read() -> bool:
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is None:
                found[message.partition() or 0].append(message.value() or b"")
        reached = [place.offset for place in consumer.position(places)]
        return all(at >= end for at, end in zip(reached, ends, strict=True))

    try:
        wait_until(is_read, "all transactions are read", HEAL_SECONDS)
    finally:
        consumer.close()
    return found


def _at_each_step(transfers: Transfers) -> None:
    """One transaction for each moment, committed and aborted in turn."""
    moments = ("before it begins", "with its records", "with its positions", "while it ends", "after its end")
    for turn, moment in enumerate(moments):
        name = f"copier-{turn}"
        producer = transfers.producer(name)

        coordinator = transfers.coordinator(name)

        def die(now: str, moment: str = moment, coordinator: int = coordinator) -> None:
            if now == moment:
                transfers.kill(coordinator, moment)

        die(moments[0])
        number = transfers.write(producer)
        die(moments[1])
        transfers.send_position(producer, number)
        die(moments[2])
        ending = threading.Thread(target=transfers.end, args=(producer, number, turn % 2 == 0, True))
        ending.start()
        die(moments[3])
        ending.join()
        die(moments[4])
        transfers.heal()
        again = transfers.producer(name)  # ends whatever was left
        transfers.end(again, transfers.write(again), True)
        transfers.until_nothing_is_open(time.monotonic(), 0.0)


def _abandoned(transfers: Transfers) -> None:
    """A transaction whose producer is never heard of again, and whose coordinator dies: the next one aborts it in
    time."""
    name = f"abandoned-{len(transfers.outcomes)}"
    producer = transfers.producer(name, TIMEOUT_MS)
    transfers.left.append(producer)
    transfers.outcomes[transfers.write(producer)] = ABORTED
    since = time.monotonic()
    transfers.kill_coordinator(name, "of an abandoned transaction")
    transfers.until_nothing_is_open(since, TIMEOUT_MS / 1000)
    transfers.heal()


def _zombie(transfers: Transfers) -> None:
    """A transaction whose producer is replaced while the coordinator dies: its commit is refused, and nothing of
    it is seen."""
    from confluent_kafka import KafkaException

    name = f"zombie-{len(transfers.outcomes)}"
    zombie = transfers.producer(name)
    number = transfers.write(zombie)
    transfers.kill_coordinator(name, "of a zombie")
    heir = transfers.producer(name)
    transfers.outcomes[number] = ABORTED
    transfers.end(heir, transfers.write(heir), True)
    try:
        zombie.commit_transaction(REQUEST_SECONDS)
        transfers.scene.check(False, f"the commit of a fenced producer was confirmed (transaction {number})")
    except KafkaException:
        pass
    transfers.heal()


def coordinators_die(scene: Scene, seconds: float) -> None:
    transfers = Transfers(scene)
    transfers.create()
    acts: tuple[Callable[[Transfers], None], ...] = (_at_each_step, _abandoned, _zombie)

    def act() -> None:
        for one in acts:
            one(transfers)

    repeat(scene, seconds, act)
    transfers.look()

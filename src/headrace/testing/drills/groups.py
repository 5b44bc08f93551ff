"""Consumers of both protocols that commit while leaders, their coordinators among them, are killed."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from headrace.testing.drills.faults import kill_leader_every
from headrace.testing.drills.scene import HEAL_SECONDS, Scene
from headrace.testing.drills.workload import PARTITIONS, QUIET, TOPIC
from headrace.testing.process_cluster import wait_until

MEMBERS = 2
COMMIT_EVERY = 50
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"group.protocol": "classic", "session.timeout.ms": 10_000},
    "consumer": {"group.protocol": "consumer"},
}


@dataclass(slots=True)
class Group:
    """Members in threads, and what they saw: reads, acknowledged commits, and starts behind one."""

    bootstrap: str
    protocol: str
    read: dict[int, set[int]] = field(default_factory=lambda: {part: set() for part in range(PARTITIONS)})
    committed: dict[int, int] = field(default_factory=dict)
    """The highest offset that was acknowledged."""
    sent_back: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self._threads = [threading.Thread(target=self._live, daemon=True) for _ in range(MEMBERS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def consumer(self, **more: Any) -> Any:
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"drill-{self.protocol}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **PROTOCOLS[self.protocol],
            **QUIET,
        }
        return Consumer({**settings, **more})

    def _live(self) -> None:
        from confluent_kafka import KafkaException

        consumer = self.consumer()
        positions: dict[int, int] = {}
        since = 0

        def assigned(_: Any, partitions: Any) -> None:
            for one in partitions:
                positions.pop(one.partition, None)

        consumer.subscribe([TOPIC], on_assign=assigned)
        while not self._stop.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                self._note_read(message.partition(), message.offset(), message.partition() not in positions)
                positions[message.partition()] = message.offset() + 1
                since += 1
            if since >= COMMIT_EVERY or (message is None and since):
                since = 0
                try:
                    self._commit(consumer, positions)
                except KafkaException:
                    continue  # unknown: it may be stored or not
        consumer.close()

    def _commit(self, consumer: Any, positions: dict[int, int]) -> None:
        from confluent_kafka import TopicPartition

        mine = {one.partition for one in consumer.assignment()}
        offsets = [TopicPartition(TOPIC, part, end) for part, end in positions.items() if part in mine]
        if not offsets:
            return
        answered = consumer.commit(offsets=offsets, asynchronous=False)
        with self._lock:
            for one in answered:
                if one.error is None:
                    self.committed[one.partition] = max(one.offset, self.committed.get(one.partition, 0))

    def _note_read(self, partition: int, offset: int, first: bool) -> None:
        with self._lock:
            if first and offset < self.committed.get(partition, 0):
                self.sent_back.append(f"{partition} at {offset}, behind {self.committed[partition]}")
            self.read[partition].add(offset)

    def stored(self) -> dict[int, int]:
        """What the coordinator says now."""
        from confluent_kafka import TopicPartition

        consumer = self.consumer(**{"group.protocol": "classic"} if self.protocol == "classic" else {})
        try:
            asked = [TopicPartition(TOPIC, part) for part in range(PARTITIONS)]
            return {one.partition: one.offset for one in consumer.committed(asked, timeout=60)}
        finally:
            consumer.close()


def groups_through_failovers(scene: Scene, seconds: float) -> None:
    """An acknowledged commit never goes back; every acknowledged record is read by both groups."""
    with ExitStack() as stack:
        groups = [stack.enter_context(Group(scene.cluster.bootstrap, protocol)) for protocol in PROTOCOLS]
        wait_until(lambda: all(group.committed for group in groups), "both groups commit", HEAL_SECONDS)
        kill_leader_every(5)(scene, seconds)
        scene.until_whole()
        scene.workload.rest()
        acked: dict[int, set[int]] = {part: set() for part in range(PARTITIONS)}
        for ack in scene.workload.history.acks:
            acked[ack.partition].add(ack.offset)
        for group in groups:
            wait_until(
                lambda group=group: all(acked[part] <= group.read[part] for part in acked),  # type: ignore[misc]
                f"the {group.protocol} group reads everything",
                HEAL_SECONDS,
            )
    for group in groups:
        stored = group.stored()
        behind = {part: (stored[part], end) for part, end in group.committed.items() if stored[part] < end}
        scene.check(not behind, f"{group.protocol}: commits went back (stored, acknowledged): {behind}")
        scene.check(not group.sent_back, f"{group.protocol}: sent back: {group.sent_back}")
        scene.notes.append(f"{group.protocol}: {sum(group.committed.values())} committed")

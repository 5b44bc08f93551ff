"""R-CON-3: the coordinator is killed while three members commit: what was acknowledged never goes back.

Each member reads, commits every record by itself, and notes what was acknowledged. The broker is killed with
`kill -9` in the middle, twice. Afterwards every partition's commit is at least what was acknowledged, no member
was ever sent back behind it, and every record was read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import confluent_kafka as ck
import pytest

from headrace.testing.process import BrokerProcess
from tests.compat.clients import Confluent as Producer
from tests.compat.clients import Record
from tests.compat.confluent_admin import AdminClient, NewTopic
from tests.compat.group_client import GroupClient
from tests.compat.group_members import Confluent, ConfluentConsumerProtocol, Got, Membership

TOPIC, GROUP = "orders", "crew"
PARTITIONS = 6
RECORDS = 400
"""In each partition."""
TIMEOUT_S = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
}


class Ledger:
    """What happened, as all members saw it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: dict[int, int] = {}
        self.read: dict[int, set[int]] = {partition: set() for partition in range(PARTITIONS)}
        self.sent_back: list[str] = []

    def note_read(self, partition: int, offset: int) -> None:
        with self._lock:
            if offset < self.acknowledged.get(partition, 0):
                self.sent_back.append(f"{partition} at {offset}, behind {self.acknowledged[partition]}")
            self.read[partition].add(offset)

    def note_acknowledged(self, partition: int, offset: int) -> None:
        with self._lock:
            self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))

    @property
    def commits(self) -> int:
        with self._lock:
            return sum(self.acknowledged.values())


def live(member: Confluent, ledger: Ledger, stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            polled = member.poll()
        except ck.KafkaException:
            continue  # the broker is down
        for number, got in enumerate(polled):
            ledger.note_read(got.partition, got.offset)
            try:
                member.commit({(TOPIC, got.partition): got.offset + 1})
            except ck.KafkaException:
                read_again(member, polled[number:])
                break
            ledger.note_acknowledged(got.partition, got.offset + 1)
    member.close()


def read_again(member: Confluent, records: list[Got]) -> None:
    """Nobody knows whether the commit was stored, so as a consumer must: from here once more."""
    for partition in {got.partition for got in records}:
        try:
            member.seek(TOPIC, partition, min(got.offset for got in records if got.partition == partition))
        except ck.KafkaException:
            continue  # another member has the partition by now


def wait(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.parametrize("kind", [Confluent, ConfluentConsumerProtocol])
def test_acknowledged_commits_never_go_back(kind: type[Confluent]) -> None:
    with BrokerProcess(SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)
        records = [Record(b"v", partition=number % PARTITIONS) for number in range(RECORDS * PARTITIONS)]
        Producer().produce(broker.bootstrap, TOPIC, records)
        ledger, stopping = Ledger(), threading.Event()
        membership = Membership(GROUP, (TOPIC,), session_ms=45_000)
        threads = [
            threading.Thread(target=live, args=(kind(broker.bootstrap, membership), ledger, stopping))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        try:
            for crash in (1, 2):
                wait(lambda crash=crash: ledger.commits > crash * 300, "nobody commits")  # type: ignore[misc]
                broker.kill()
                broker.start()
                check_commits(broker, ledger)
            everything = set(range(RECORDS))
            wait(lambda: all(offsets == everything for offsets in ledger.read.values()), "not all was read")
        finally:
            stopping.set()
            for thread in threads:
                thread.join(TIMEOUT_S)
        assert ledger.sent_back == []
        check_commits(broker, ledger)


def check_commits(broker: BrokerProcess, ledger: Ledger) -> None:
    acknowledged = dict(ledger.acknowledged)
    with GroupClient(broker.bootstrap) as client:
        client.wait_for_coordinator(GROUP)
        for partition, offset in acknowledged.items():
            assert client.committed(GROUP, TOPIC, partition) >= offset

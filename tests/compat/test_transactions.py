"""R-PRO-4, R-CON-5: transactions with real clients. What is committed is read once, what is aborted never."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from headrace.model.errors import ErrorCode
from tests.compat.conftest import MakeTopic, make_topics, unique_name
from tests.compat.transaction_client import TransactionClient
from tests.conftest import KINDS

TIMEOUT_S = 60.0
TRANSACTION_SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "4",
}
"""A broker that misses transactions past their timeout soon."""


@pytest.fixture(scope="module")
def txn_bootstrap(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[str]:
    given = request.config.getoption("--bootstrap")
    if given:
        yield str(given)
        return
    with KINDS[broker_kind](TRANSACTION_SETTINGS) as server:
        yield server.bootstrap


@pytest.fixture
def txn_topic(txn_bootstrap: str) -> Iterator[MakeTopic]:
    yield from make_topics(txn_bootstrap, AdminClient({"bootstrap.servers": txn_bootstrap}))


def read(bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed") -> list[bytes]:
    """All that a consumer sees up to where it may read."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique_name("g"),
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"only {ended} of {partitions} partitions came to an end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
        elif error.code() == ck.KafkaError._PARTITION_EOF:
            partition = message.partition()
            assert partition is not None
            ended.add(partition)
        else:
            raise AssertionError(error)
    consumer.close()
    return found


def read_until(bootstrap: str, topic: str, partitions: int, expected: set[bytes]) -> list[bytes]:
    """Markers follow the answer to a commit: what was committed shows a moment later."""
    deadline = time.monotonic() + TIMEOUT_S
    while set(found := read(bootstrap, topic, partitions)) != expected:
        assert time.monotonic() < deadline, f"read {sorted(found)}"
        time.sleep(0.05)
    return found


class Transactions(Protocol):
    async def run(self, bootstrap: str, topic: str, rounds: int) -> set[bytes]:
        """Three records to two partitions in each transaction; every other one commits. What was committed."""


class ConfluentTransactions:
    async def run(self, bootstrap: str, topic: str, rounds: int) -> set[bytes]:
        producer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": unique_name("x")})
        producer.init_transactions(TIMEOUT_S)
        committed: set[bytes] = set()
        for number in range(rounds):
            values = [f"{number}-{part}".encode() for part in range(3)]
            producer.begin_transaction()
            for part, value in enumerate(values):
                producer.produce(topic, value, partition=part % 2)
            if number % 2:
                producer.commit_transaction(TIMEOUT_S)
                committed.update(values)
            else:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
        return committed


class AioTransactions:
    async def run(self, bootstrap: str, topic: str, rounds: int) -> set[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique_name("x"))
        await producer.start()
        committed: set[bytes] = set()
        try:
            for number in range(rounds):
                values = [f"{number}-{part}".encode() for part in range(3)]
                await producer.begin_transaction()
                for part, value in enumerate(values):
                    await producer.send_and_wait(topic, value, partition=part % 2)
                if number % 2:
                    await producer.commit_transaction()
                    committed.update(values)
                else:
                    await producer.abort_transaction()
        finally:
            await producer.stop()
        return committed


class PythonTransactions:
    async def run(self, bootstrap: str, topic: str, rounds: int) -> set[bytes]:
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique_name("x"))
        producer.init_transactions()
        committed: set[bytes] = set()
        for number in range(rounds):
            values = [f"{number}-{part}".encode() for part in range(3)]
            producer.begin_transaction()
            for part, value in enumerate(values):
                producer.send(topic, value, partition=part % 2).get(timeout=TIMEOUT_S)
            if number % 2:
                producer.commit_transaction()
                committed.update(values)
            else:
                producer.abort_transaction()
        producer.close()
        return committed


@pytest.mark.parametrize("client", [ConfluentTransactions(), AioTransactions(), PythonTransactions()], ids=type)
async def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    txn_bootstrap: str, txn_topic: MakeTopic, client: Transactions
) -> None:
    topic = txn_topic(2)
    committed = await client.run(txn_bootstrap, topic, 6)
    assert len(committed) == 9
    found = read_until(txn_bootstrap, topic, 2, committed)
    assert len(found) == len(committed), "nothing twice"
    assert len(read(txn_bootstrap, topic, 2, "read_uncommitted")) == 18


def test_a_zombie_is_fenced(txn_bootstrap: str, txn_topic: MakeTopic) -> None:
    topic, name = txn_topic(1), unique_name("x")
    producers = []
    for value in (b"first", b"second"):
        producer = ck.Producer({"bootstrap.servers": txn_bootstrap, "transactional.id": name, "log_level": 0})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(TIMEOUT_S)
        producers.append(producer)
    zombie, successor = producers
    with pytest.raises(ck.KafkaException) as refused:
        zombie.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].fatal()
    successor.commit_transaction(TIMEOUT_S)
    assert read_until(txn_bootstrap, topic, 1, {b"second"}) == [b"second"]


def test_a_transaction_past_its_timeout_is_aborted(txn_bootstrap: str, txn_topic: MakeTopic) -> None:
    topic = txn_topic(1)
    producer = ck.Producer(
        {
            "bootstrap.servers": txn_bootstrap,
            "transactional.id": unique_name("x"),
            "transaction.timeout.ms": 1000,
            "message.timeout.ms": 1000,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"late")
    producer.flush(TIMEOUT_S)
    plain = ck.Producer({"bootstrap.servers": txn_bootstrap})
    plain.produce(topic, b"after")
    plain.flush(TIMEOUT_S)
    assert read_until(txn_bootstrap, topic, 1, {b"after"}) == [b"after"]
    with pytest.raises(ck.KafkaException):
        producer.commit_transaction(TIMEOUT_S)


@pytest.fixture
def overdue(txn_bootstrap: str, txn_topic: MakeTopic) -> Iterator[TransactionClient]:
    """With a transaction that was open for too long."""
    with TransactionClient(txn_bootstrap, unique_name("x")) as made:
        made.find()
        assert made.init_until_ready(transaction_timeout_ms=1000) is ErrorCode.NONE
        assert made.produce(txn_topic(), version=12) is ErrorCode.NONE
        made.until_state("CompleteAbort")
        yield made


def test_one_whose_time_was_up_aborts_and_goes_on(overdue: TransactionClient, txn_topic: MakeTopic) -> None:
    """Producers of Java 4.0 do: to them it is an error after which an application may abort."""
    assert overdue.end(False, 4) is ErrorCode.PRODUCER_FENCED
    assert overdue.end(False, 5) is ErrorCode.NONE
    assert overdue.produce(txn_topic(), version=12) is ErrorCode.NONE
    assert overdue.end(True, 5) is ErrorCode.NONE


def test_one_whose_time_was_up_asks_for_a_new_epoch(overdue: TransactionClient, txn_topic: MakeTopic) -> None:
    before = {"producer_id": overdue.producer_id, "producer_epoch": overdue.epoch}
    assert overdue.init(**before) is ErrorCode.NONE
    assert overdue.produce(txn_topic(), version=12) is ErrorCode.NONE


def test_one_whose_time_was_up_is_fenced_by_a_successor(overdue: TransactionClient) -> None:
    before = {"producer_id": overdue.producer_id, "producer_epoch": overdue.epoch}
    assert overdue.init() is ErrorCode.NONE
    assert overdue.end(False, 5, **before) is ErrorCode.PRODUCER_FENCED
    assert overdue.init(**before) is ErrorCode.PRODUCER_FENCED


def test_many_transactions_of_many_producers(txn_bootstrap: str, txn_topic: MakeTopic) -> None:
    topic = txn_topic(3)
    producers = []
    for _ in range(4):
        producer = ck.Producer({"bootstrap.servers": txn_bootstrap, "transactional.id": unique_name("x")})
        producer.init_transactions(TIMEOUT_S)
        producers.append(producer)
    expected = set()
    for number in range(25):
        for owner, producer in enumerate(producers):
            producer.begin_transaction()
            for partition in range(3):
                value = f"{owner}-{number}-{partition}".encode()
                producer.produce(topic, value, partition=partition)
                expected.add(value)
        for producer in producers:
            producer.commit_transaction(TIMEOUT_S)
    assert len(read_until(txn_bootstrap, topic, 3, expected)) == 300

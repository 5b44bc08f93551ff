"""What is stored of a transaction is what the schema of Kafka's records would write, to the byte."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.topics import TopicPartition
from headrace.services.transactions.encoding import encode_transaction
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import Transaction
from headrace.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

SHORT, INT, LONG = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (15, 31, 63))
PLACES = st.builds(TopicPartition, st.text("aé-", min_size=1, max_size=200), st.integers(0, 2**31 - 1))
TRANSACTIONS = st.builds(
    Transaction,
    transactional_id=st.text(max_size=300),
    producer_id=LONG,
    producer_epoch=SHORT,
    state=st.sampled_from(TransactionState),
    timeout_ms=INT,
    updated_ms=LONG,
    start_ms=LONG,
    partitions=st.frozensets(PLACES, max_size=30),
    previous_producer_id=st.just(-1) | LONG,
    next_producer_id=st.just(-1) | LONG,
    next_producer_epoch=st.just(-1) | SHORT,
    client_version=st.just(0) | SHORT,
    timeout_before_ms=st.just(-1) | INT,
    last_epoch=st.just(-1) | SHORT,
)


def by_the_schema(transaction: Transaction) -> tuple[bytes, bytes]:
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        next_producer_epoch=transaction.next_producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=by_topic(sorted(transaction.partitions)),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
        headrace_timeout_before_ms=transaction.timeout_before_ms,
        headrace_last_epoch=transaction.last_epoch,
    )
    if transaction.state is TransactionState.EMPTY:
        value.transaction_partitions = None
    return TransactionLogKey(transactional_id=transaction.transactional_id).to_bytes(), value.to_bytes(1)


def by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]


@given(TRANSACTIONS)
def test_as_the_schema_writes_it(transaction: Transaction) -> None:
    record = encode_transaction(transaction)
    assert (record.key, record.value) == by_the_schema(transaction)
    assert record.timestamp == transaction.updated_ms


@pytest.mark.parametrize("count", [1, 20, 21, 128, 20_000])
def test_many_partitions(count: int) -> None:
    """Those of large transactions are not remembered, and their count takes more than a byte."""
    partitions = frozenset(TopicPartition("t", index) for index in range(count))
    transaction = Transaction("id", 1, 2, TransactionState.ONGOING, 3, 4, partitions=partitions)
    for _ in range(2):
        record = encode_transaction(transaction)
        assert (record.key, record.value) == by_the_schema(transaction)

"""Transactions as the commands show them, and which of them hang."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.transactions import (
    OpenTransaction,
    TransactionFilters,
    describe_transaction,
    list_transactions,
    open_transactions,
)
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.describe_producers import ProducerState
from headrace.wire.messages.describe_transactions import TransactionState

NO_TIMEOUT_MS = 2**31 - 1
OPEN = "Ongoing"


class HangingTransaction(NamedTuple):
    open: OpenTransaction
    transactional_id: str | None
    """Whose id the producer has; None if no coordinator knows the producer."""
    reason: str


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def time_text(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def state_row(state: TransactionState, coordinator: Address) -> dict[str, Any]:
    is_open = state.transaction_state == OPEN
    prepared = is_open and state.transaction_timeout_ms == NO_TIMEOUT_MS
    duration_ms = now_ms() - state.transaction_start_time_ms if is_open else None
    partitions = [f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions]
    return {
        "transactional_id": state.transactional_id,
        "state": state.transaction_state,
        "prepared": prepared,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "timeout_ms": None if state.transaction_timeout_ms == NO_TIMEOUT_MS else state.transaction_timeout_ms,
        "start_time": time_text(state.transaction_start_time_ms),
        "open_seconds": None if duration_ms is None else max(duration_ms, 0) / 1000,
        "coordinator": str(coordinator),
        "partitions": sorted(partitions),
    }


def producer_row(partition: TopicPartition, producer: ProducerState) -> dict[str, Any]:
    is_open = producer.current_txn_start_offset >= 0
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
        "last_sequence": producer.last_sequence,
        "last_time": time_text(producer.last_timestamp),
        "transaction_start_offset": producer.current_txn_start_offset if is_open else None,
    }


def hanging_row(found: HangingTransaction) -> dict[str, Any]:
    row = producer_row(found.open.partition, found.open.producer)
    idle_ms = now_ms() - found.open.producer.last_timestamp
    return {
        **row,
        "transactional_id": found.transactional_id,
        "idle_seconds": max(idle_ms, 0) / 1000,
        "reason": found.reason,
    }


async def partitions_of(
    cluster: Cluster, topics: Sequence[str] = (), partition: int | None = None, broker_id: int | None = None
) -> list[TopicPartition]:
    """All transactions of the cluster, or of these topics, or of those that a broker leads."""
    view = await cluster.metadata(topics or None)
    for name in topics:
        view.topic(name)
    return [
        TopicPartition(topic.name, one.number)
        for topic in view.topics.values()
        for one in topic.partitions
        if (partition is None or one.number == partition) and broker_id in (None, one.leader)
    ]


async def hanging_transactions(
    cluster: Cluster, partitions: Iterable[TopicPartition], idle_longer_than_s: float
) -> list[HangingTransaction]:
    """Open in a partition, idle for long, and not of a transaction that its coordinator has open there."""
    oldest_ms = now_ms() - int(idle_longer_than_s * 1000)
    suspects = [
        one for one in await open_transactions(cluster, partitions) if one.producer.last_timestamp <= oldest_ms
    ]
    if not suspects:
        return []
    producer_ids = sorted({one.producer.producer_id for one in suspects})
    entries = await list_transactions(cluster, TransactionFilters(producer_ids=producer_ids))
    ids = {entry.producer_id: entry.transactional_id for entry in entries}
    states: dict[str, TransactionState] = {}
    for name in sorted(set(ids.values())):
        try:
            states[name], _ = await describe_transaction(cluster, name)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    judged = [_judged(one, ids.get(one.producer.producer_id), states) for one in suspects]
    return [one for one in judged if one is not None]


def _judged(
    found: OpenTransaction, transactional_id: str | None, states: dict[str, TransactionState]
) -> HangingTransaction | None:
    state = states.get(transactional_id or "")
    if state is None:
        return HangingTransaction(found, None, "no coordinator knows the producer")
    topic, index = found.partition
    if not any(one.topic == topic and index in one.partitions for one in state.topics):
        return HangingTransaction(found, transactional_id, "the partition is not in the transaction")
    return None

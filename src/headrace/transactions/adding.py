"""AddPartitionsToTxn, AddOffsetsToTxn: partitions join a transaction, or are found to be in it (KIP-890)."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.transactions.decision import TransactionDecision, refuse
from headrace.transactions.states import ENDING, TransactionState
from headrace.transactions.transaction import ProducerIdentity, Transaction

NOTHING_TO_DO = TransactionDecision()


def decide_add(
    current: Transaction | None,
    producer: ProducerIdentity,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionDecision:
    """The first partitions of a transaction begin it."""
    error = _check(current, producer)
    if error is not ErrorCode.NONE:
        return refuse(error)
    assert current is not None
    if current.taken_over:
        return refuse(ErrorCode.INVALID_TXN_STATE)
    ongoing = current.state is TransactionState.ONGOING
    if ongoing and partitions <= current.partitions:
        return NOTHING_TO_DO
    added = current._replace(
        state=TransactionState.ONGOING,
        partitions=current.partitions | partitions if ongoing else partitions,
        start_ms=current.start_ms if ongoing else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )
    return TransactionDecision(changed=added)


def verify(
    current: Transaction | None, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether each partition is in the transaction of this producer."""
    error = _check(current, producer)
    if error is not ErrorCode.NONE:
        return dict.fromkeys(partitions, error)
    assert current is not None
    return {
        partition: ErrorCode.NONE if partition in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def _check(current: Transaction | None, producer: ProducerIdentity) -> ErrorCode:
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    identity = current.identity
    if identity.producer_id != producer.producer_id:
        fenced = current.state in ENDING and current.producer_id == producer.producer_id
        return ErrorCode.PRODUCER_FENCED if fenced else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if identity.epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    if current.state in ENDING:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE

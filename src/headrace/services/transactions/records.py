"""What the records of `__transaction_state` say of transactions. `encoding` writes them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model.errors import ProtocolError
from headrace.model.topics import TopicPartition
from headrace.records.batch import CONTROL, parse_header
from headrace.records.reader import read_records
from headrace.transactions.states import ENDED, TransactionState
from headrace.transactions.transaction import Transaction
from headrace.wire.messages.group_records import leading_int16
from headrace.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue

_STORED = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}

LoadedTransaction = tuple[str, Transaction | None]
"""A transactional id, and what was stored last of it; None once it has expired."""


def decode_transactions(batch: memoryview) -> Iterator[LoadedTransaction]:
    """What a batch says, in order. Records of unknown kinds, from a later release, are skipped."""
    if parse_header(batch).attributes & CONTROL:
        return
    for record in read_records(batch):
        if record.key is None:
            raise ProtocolError(f"the record at offset {record.offset} has no key")
        if leading_int16(record.key) != TransactionLogKey.kind:
            continue
        transactional_id = TransactionLogKey.from_bytes(record.key).transactional_id
        yield transactional_id, None if record.value is None else _decode(transactional_id, record.value)


def _decode(transactional_id: str, raw: bytes) -> Transaction:
    value = TransactionLogValue.from_bytes(raw)
    state = TransactionState(value.transaction_status) if 0 <= value.transaction_status <= 7 else None
    if state not in _STORED:
        raise ProtocolError(f"'{transactional_id}' has the unknown state {value.transaction_status}")
    partitions = frozenset(
        TopicPartition(topic.topic, index)
        for topic in value.transaction_partitions or ()
        for index in topic.partition_ids
    )
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        state,
        value.transaction_timeout_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        partitions=frozenset() if state in ENDED else partitions,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        client_version=value.client_transaction_version,
        timeout_before_ms=value.headrace_timeout_before_ms,
        last_epoch=value.headrace_last_epoch,
    )

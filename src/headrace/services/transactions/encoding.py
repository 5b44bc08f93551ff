"""Transactions as records of `__transaction_state`, in Kafka's format: what is stored of every one three times.

This writes what `TransactionLogKey` and version 1 of `TransactionLogValue` would, byte for byte, at a fraction of
the cost. The order is that of their fields; those with a tag are only there if they say something.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from headrace.model.topics import TopicPartition
from headrace.model.varint import write_uvarint
from headrace.records.builder import NewRecord
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import (
    CLASSIC,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOT_PREPARED,
    Transaction,
)
from headrace.wire.messages.transaction_records import TransactionLogKey

VERSION = 1
_KEY = Struct(">hh")
_BEGIN = Struct(">hqhib")
_TIMES = Struct(">qq")
_SHORT_TAG, _LONG_TAG = Struct(">BBh"), Struct(">BBq")
_OUR_SHORT_TAG, _OUR_INT_TAG = Struct(">BBBh"), Struct(">BBBi")
"""With 10,000 or 10,001 as their number, which takes two bytes."""
_NO_PARTITIONS = b"\x00"
_REMEMBERED = 1000
"""Sets of partitions. Most producers write to the same ones in each transaction."""
_MOST_REMEMBERED = 20
"""Partitions of such a set."""


def encode_transaction(transaction: Transaction) -> NewRecord:
    """It is stored whole."""
    state, partitions = transaction.state, transaction.partitions
    if state is TransactionState.EMPTY:
        section = _NO_PARTITIONS
    elif len(partitions) <= _MOST_REMEMBERED:
        section = _remembered_section(partitions)
    else:
        section = _section(partitions)
    tags = _tags(transaction)
    value = b"".join(
        (
            _BEGIN.pack(
                VERSION, transaction.producer_id, transaction.producer_epoch, transaction.timeout_ms, state
            ),
            section,
            _TIMES.pack(transaction.updated_ms, transaction.start_ms),
            bytes((len(tags),)),
            *tags,
        )
    )
    return NewRecord(value, encode_key(transaction.transactional_id), transaction.updated_ms)


def encode_key(transactional_id: str) -> bytes:
    raw = transactional_id.encode()
    return _KEY.pack(TransactionLogKey.kind, len(raw)) + raw


def _section(partitions: frozenset[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    out = bytearray()
    write_uvarint(out, len(topics) + 1)
    for topic, indexes in topics.items():
        raw = topic.encode()
        write_uvarint(out, len(raw) + 1)
        out += raw
        write_uvarint(out, len(indexes) + 1)
        out += Struct(f">{len(indexes)}i").pack(*indexes)
        out.append(0)
    return bytes(out)


_remembered_section = lru_cache(_REMEMBERED)(_section)


def _tags(transaction: Transaction) -> list[bytes]:
    tags = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_LONG_TAG.pack(0, 8, transaction.previous_producer_id))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append(_LONG_TAG.pack(1, 8, transaction.next_producer_id))
    if transaction.client_version != CLASSIC:
        tags.append(_SHORT_TAG.pack(2, 2, transaction.client_version))
    if transaction.next_producer_epoch != NO_EPOCH:
        tags.append(_SHORT_TAG.pack(3, 2, transaction.next_producer_epoch))
    if transaction.timeout_before_ms != NOT_PREPARED:
        tags.append(_OUR_INT_TAG.pack(0x90, 0x4E, 4, transaction.timeout_before_ms))
    if transaction.last_epoch != NO_EPOCH:
        tags.append(_OUR_SHORT_TAG.pack(0x91, 0x4E, 2, transaction.last_epoch))
    return tags

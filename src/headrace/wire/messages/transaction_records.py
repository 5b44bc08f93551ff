"""The records of __transaction_state: one for each transactional id, as it was last decided.

A record's key begins with an int16 0, its value with an int16 version; a null value deletes. Version 1 is flexible
and has what transactions version 2 adds (KIP-890): the producer ids before and after, and what the client speaks.
"""

from __future__ import annotations

from headrace.wire.messages.group_records import InternalRecord
from headrace.wire.primitives import INT8, INT16, INT32, INT64, STRING
from headrace.wire.schema import Struct, array, field


class TransactionLogKey(InternalRecord, kind=0, versions=range(1)):
    transactional_id: str = field(STRING)


class PartitionsSchema(Struct):
    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


class TransactionLogValue(InternalRecord, versions=range(2), flexible=1):
    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, since=1, tag=0, default=-1)
    next_producer_id: int = field(INT64, since=1, tag=1, default=-1)
    producer_epoch: int = field(INT16)
    next_producer_epoch: int = field(INT16, since=1, tag=3, default=-1)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[PartitionsSchema] | None = field(array(PartitionsSchema), nullable=0)
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, since=1, tag=2)
    headrace_timeout_before_ms: int = field(INT32, since=1, tag=10_000, default=-1)
    """Headrace only, ignored by Kafka: the timeout that applies again after a prepared transaction has ended."""
    headrace_last_epoch: int = field(INT16, since=1, tag=10_001, default=-1)
    """Ours as well: the epoch before a bump that the producer itself asked for."""

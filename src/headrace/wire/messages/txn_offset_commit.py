"""TxnOffsetCommit (28): store a group's positions as part of a transaction.

v2 leader epoch; v3 flexible, and the member's identity so that zombies are refused (KIP-447); v4
TRANSACTION_ABORTABLE; v5 also enters the offsets partition into the transaction (KIP-890).
"""

from __future__ import annotations

from headrace.wire.primitives import INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=2, default=-1)
    committed_metadata: str | None = field(STRING, nullable=0)


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = field(array(TxnOffsetCommitRequestPartition))


class TxnOffsetCommitRequest(Request, key=28, versions=range(6), flexible=3):
    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id: int = field(INT32, since=3, default=-1, ignorable=False)
    member_id: str = field(STRING, since=3, ignorable=False)
    group_instance_id: str | None = field(STRING, since=3, nullable=0, default=None, ignorable=False)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = field(array(TxnOffsetCommitResponsePartition))


class TxnOffsetCommitResponse(Response, key=28, versions=range(6), flexible=3):
    throttle_time_ms: int = field(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic))

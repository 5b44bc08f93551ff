"""DescribeTransactions (65): state of transactions by transactional id (KIP-664)."""

from __future__ import annotations

from headrace.wire.primitives import INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class DescribeTransactionsRequest(Request, key=65, versions=range(1), flexible=0):
    transactional_ids: list[str] = field(array(STRING))


class TopicData(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class TransactionState(Struct):
    error_code: int = field(INT16)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[TopicData] = field(array(TopicData))


class DescribeTransactionsResponse(Response, key=65, versions=range(1), flexible=0):
    throttle_time_ms: int = field(INT32)
    transaction_states: list[TransactionState] = field(array(TransactionState))

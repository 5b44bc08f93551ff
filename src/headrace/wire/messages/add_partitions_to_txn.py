"""AddPartitionsToTxn (24): enter partitions into a transaction, or verify that they are in one.

v0-3 are what clients send, for one transaction; v3 flexible; v4 is between brokers, many transactions in one
request and verify-only (KIP-890); v5 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class AddPartitionsToTxnTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    verify_only: bool = field(BOOL)
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic))


class AddPartitionsToTxnRequest(Request, key=24, versions=range(6), flexible=3):
    transactions: list[AddPartitionsToTxnTransaction] = field(
        array(AddPartitionsToTxnTransaction), since=4, ignorable=False
    )
    v3_and_below_transactional_id: str = field(STRING, until=3, ignorable=False)
    v3_and_below_producer_id: int = field(INT64, until=3, ignorable=False)
    v3_and_below_producer_epoch: int = field(INT16, until=3, ignorable=False)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTopic), until=3, ignorable=False
    )


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


class AddPartitionsToTxnTopicResult(Struct):
    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(array(AddPartitionsToTxnPartitionResult))


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = field(STRING)
    topic_results: list[AddPartitionsToTxnTopicResult] = field(array(AddPartitionsToTxnTopicResult))


class AddPartitionsToTxnResponse(Response, key=24, versions=range(6), flexible=3):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=4)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        array(AddPartitionsToTxnResult), since=4, ignorable=False
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), until=3, ignorable=False
    )

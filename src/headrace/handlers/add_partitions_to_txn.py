"""AddPartitionsToTxn (24), v0-5. Partitions join a transaction; the first ones begin it.

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v3 is the last for clients; v4 between brokers: many
transactions in one request, and only to verify (KIP-890); v5 TRANSACTION_ABORTABLE. A partition that does not
exist fails all of its transaction: the others are answered OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

import asyncio

from headrace.handlers.context import Context, transactional_id_write
from headrace.handlers.registry import api
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode
from headrace.model.topics import INTERNAL_TOPICS, TopicPartition
from headrace.transactions.transaction import BUMPS_EPOCH, CLASSIC, ProducerIdentity
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_SINCE = 4
FENCED_SINCE = 2
"""From here on clients know PRODUCER_FENCED."""

_PartitionErrors = dict[TopicPartition, ErrorCode]


@api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, versions=range(6), authorize=transactional_id_write)
async def add_partitions_to_txn(ctx: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Adds partitions to a transaction, or verifies that they are in one."""
    if ctx.version < BATCHED_SINCE:
        one = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(one, await _add(ctx, one)))
    asked = request.transactions
    outcomes = await asyncio.gather(*(_add(ctx, transaction) for transaction in asked))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_results(transaction, errors)
            )
            for transaction, errors in zip(asked, outcomes, strict=True)
        ]
    )


async def _add(ctx: Context, asked: AddPartitionsToTxnTransaction) -> _PartitionErrors:
    partitions = [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions]
    from_client = ctx.version < BATCHED_SINCE
    refused = _refused(ctx.broker.metadata.image, partitions, from_client)
    if refused:
        return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
    producer = ProducerIdentity(asked.producer_id, asked.producer_epoch)
    transactions = ctx.broker.transactions
    if asked.verify_only:
        return transactions.verify_partitions(asked.transactional_id, producer, partitions)
    client_version = CLASSIC if from_client else BUMPS_EPOCH
    error = await transactions.add_partitions(
        asked.transactional_id, producer, frozenset(partitions), client_version
    )
    if error is ErrorCode.PRODUCER_FENCED and ctx.version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(partitions, error)


def _refused(image: MetadataImage, partitions: list[TopicPartition], from_client: bool) -> _PartitionErrors:
    refused: _PartitionErrors = {}
    for partition in partitions:
        if from_client and partition.topic in INTERNAL_TOPICS:
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(partition) is None:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _results(
    asked: AddPartitionsToTxnTransaction, errors: _PartitionErrors
) -> list[AddPartitionsToTxnTopicResult]:
    return [_topic_result(topic, errors) for topic in asked.topics]


def _topic_result(topic: AddPartitionsToTxnTopic, errors: _PartitionErrors) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=errors[TopicPartition(topic.name, index)]
            )
            for index in topic.partitions
        ],
    )

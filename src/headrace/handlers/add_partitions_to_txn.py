"""AddPartitionsToTxn (24), v0-5. Partitions join a transaction; the first ones begin it.

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v3 is the last for clients; v4 between brokers: many
transactions in one request, and only to verify (KIP-890); v5 TRANSACTION_ABORTABLE. A partition that does not
exist fails all of its transaction: the others are answered OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from headrace.handlers.context import Channel, Context, transactional_id_write
from headrace.handlers.registry import api
from headrace.handlers.transaction_requests import quick_answer
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode
from headrace.model.topics import INTERNAL_TOPICS, TopicPartition
from headrace.services.reply import NOT_QUICK, QuickReply
from headrace.transactions.decision import TransactionDecision
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
from headrace.wire.transaction_frames import AddedTopics, add_answer, read_add

BATCHED_SINCE = 4
FENCED_SINCE = 2
"""From here on clients know PRODUCER_FENCED."""
AT_ONCE = 20
"""Transactions of a request that are handled at the same time."""


class _Errors(NamedTuple):
    """The results of a transaction's partitions; most of them are the same."""

    most: ErrorCode
    others: Mapping[TopicPartition, ErrorCode]


def quick_add_partitions_to_txn(channel: Channel, version: int, frame: memoryview, position: int) -> QuickReply:
    """Adds partitions that all exist, for a client."""
    asked = read_add(frame, position, version) if version < BATCHED_SINCE else None
    if asked is None:
        return NOT_QUICK
    transactional_id, producer_id, epoch, topics = asked
    image = channel.broker.metadata.image
    if any(_refusal(image, partition, from_client=True) is not None for partition in topics.partitions):
        return NOT_QUICK
    producer = ProducerIdentity(producer_id, epoch)
    transactions = channel.broker.transactions
    add = partial(transactions.quick_add, transactional_id, producer, topics.partitions, CLASSIC)
    return quick_answer(add, partial(_quick_answer, version, topics))


def _quick_answer(version: int, topics: AddedTopics, decision: TransactionDecision, stored: ErrorCode) -> bytes:
    return add_answer(topics, _error(decision.error if stored is ErrorCode.NONE else stored, version))


def _error(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


@api(
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    versions=range(6),
    quick=quick_add_partitions_to_txn,
    authorize=transactional_id_write,
)
async def add_partitions_to_txn(ctx: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Adds partitions to a transaction, or verifies that they are in one."""
    if ctx.version < BATCHED_SINCE:
        one = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _answered(ctx, one))
    response = AddPartitionsToTxnResponse()
    async for start in ctx.each(range(0, len(request.transactions), AT_ONCE)):
        asked = request.transactions[start : start + AT_ONCE]
        answers = await asyncio.gather(*(_answered(ctx, transaction) for transaction in asked))
        response.results_by_transaction.extend(
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results)
            for transaction, results in zip(asked, answers, strict=True)
        )
    return response


async def _answered(ctx: Context, asked: AddPartitionsToTxnTransaction) -> list[AddPartitionsToTxnTopicResult]:
    errors = await _add(ctx, asked)
    return [await _topic_result(ctx, topic, errors) async for topic in ctx.each(asked.topics)]


async def _add(ctx: Context, asked: AddPartitionsToTxnTransaction) -> _Errors:
    from_client = ctx.version < BATCHED_SINCE
    partitions: set[TopicPartition] = set()
    refused: dict[TopicPartition, ErrorCode] = {}
    async for topic in ctx.each(asked.topics):
        async for index in ctx.each(topic.partitions):
            partition = TopicPartition(topic.name, index)
            error = _refusal(ctx.broker.metadata.image, partition, from_client)
            if error is None:
                partitions.add(partition)
            else:
                refused[partition] = error
    if refused:
        return _Errors(ErrorCode.OPERATION_NOT_ATTEMPTED, refused)
    producer = ProducerIdentity(asked.producer_id, asked.producer_epoch)
    transactions = ctx.broker.transactions
    if asked.verify_only:
        verified = transactions.verify_partitions(asked.transactional_id, producer, partitions)
        return _Errors(ErrorCode.NONE, verified)
    client_version = CLASSIC if from_client else BUMPS_EPOCH
    error = await transactions.add_partitions(
        asked.transactional_id, producer, frozenset(partitions), client_version
    )
    return _Errors(_error(error, ctx.version), {})


def _refusal(image: MetadataImage, partition: TopicPartition, from_client: bool) -> ErrorCode | None:
    if from_client and partition.topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if image.partition(partition) is None else None


async def _topic_result(
    ctx: Context, topic: AddPartitionsToTxnTopic, errors: _Errors
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=index,
                partition_error_code=errors.others.get(TopicPartition(topic.name, index), errors.most),
            )
            async for index in ctx.each(topic.partitions)
        ],
    )

"""DescribeTransactions (65), v0. The state of transactions by transactional id (KIP-664)."""

from __future__ import annotations

from headrace.handlers.context import Context, transactional_id_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


@api(
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    versions=range(1),
    authorize=transactional_id_describe,
)
async def describe_transactions(
    ctx: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Returns the state of transactions by transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(ctx, name) async for name in ctx.each(dict.fromkeys(request.transactional_ids))
        ]
    )


def _describe(ctx: Context, transactional_id: str) -> TransactionState:
    try:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = ctx.broker.transactions.transaction(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )

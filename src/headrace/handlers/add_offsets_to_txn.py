"""AddOffsetsToTxn (25), v0-4. A group's positions join a transaction, before TxnOffsetCommit sends them.

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v4 TRANSACTION_ABORTABLE (KIP-890). What joins is the
partition of __consumer_offsets that keeps the group.
"""

from __future__ import annotations

from headrace.handlers.context import Context, transactional_id_write
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.transactions.transaction import CLASSIC, ProducerIdentity
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_SINCE = 2


@api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, versions=range(5), authorize=transactional_id_write)
async def add_offsets_to_txn(ctx: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Adds a group's offsets to a transaction."""
    error = await _add(ctx, request)
    if error is ErrorCode.PRODUCER_FENCED and ctx.version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)


async def _add(ctx: Context, request: AddOffsetsToTxnRequest) -> ErrorCode:
    groups = ctx.broker.groups
    try:
        await groups.ensure_topic()
    except KafkaError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return await ctx.broker.transactions.add_partitions(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        frozenset({groups.offsets_partition(request.group_id)}),
        CLASSIC,
    )

"""EndTxn (26), v0-5. Commits or aborts a transaction.

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v4 TRANSACTION_ABORTABLE; v5 is transactions version 2: every
end bumps the epoch, and the answer tells it (KIP-890). The answer comes once the end is decided and replicated;
the markers follow.
"""

from __future__ import annotations

from headrace.handlers.context import Context, transactional_id_write
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.transactions.ending import EndTransaction
from headrace.transactions.transaction import ProducerIdentity
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2
BUMPS_EPOCH_SINCE = 5


@api(EndTxnRequest, EndTxnResponse, versions=range(6), authorize=transactional_id_write)
async def end_txn(ctx: Context, request: EndTxnRequest) -> EndTxnResponse:
    """Commits or aborts a transaction."""
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    decision = await ctx.broker.transactions.end(
        request.transactional_id,
        EndTransaction(producer, request.committed, bumps_epoch=ctx.version >= BUMPS_EPOCH_SINCE),
    )
    if decision.error is ErrorCode.PRODUCER_FENCED and ctx.version < FENCED_SINCE:
        return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
    if decision.error is not ErrorCode.NONE or ctx.version < BUMPS_EPOCH_SINCE:
        return EndTxnResponse(error_code=decision.error)
    return EndTxnResponse(producer_id=decision.producer.producer_id, producer_epoch=decision.producer.epoch)

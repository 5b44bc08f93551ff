"""EndTxn (26), v0-5. Commits or aborts a transaction.

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v4 TRANSACTION_ABORTABLE; v5 is transactions version 2: every
end bumps the epoch, and the answer tells it (KIP-890). The answer comes once the end is decided and replicated;
the markers follow.
"""

from __future__ import annotations

from functools import partial

from headrace.handlers.context import Channel, Context, transactional_id_write
from headrace.handlers.registry import api
from headrace.handlers.transaction_requests import quick_answer
from headrace.model.errors import ErrorCode
from headrace.services.reply import NOT_QUICK, QuickReply
from headrace.transactions.decision import TransactionDecision
from headrace.transactions.ending import EndTransaction
from headrace.transactions.transaction import NOBODY, ProducerIdentity
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.transaction_frames import end_answer, read_end

FENCED_SINCE = 2
BUMPS_EPOCH_SINCE = 5


def quick_end_txn(channel: Channel, version: int, frame: memoryview, position: int) -> QuickReply:
    """Ends a transaction of which nothing else is under way."""
    asked = read_end(frame, position, version)
    if asked is None:
        return NOT_QUICK
    transactional_id, producer_id, epoch, commit = asked
    request = EndTransaction(ProducerIdentity(producer_id, epoch), commit, version >= BUMPS_EPOCH_SINCE)
    end = partial(channel.broker.transactions.quick_end, transactional_id, request)
    return quick_answer(end, partial(_quick_answer, version))


def _quick_answer(version: int, decision: TransactionDecision, stored: ErrorCode) -> bytes:
    error = _error(decision.error if stored is ErrorCode.NONE else stored, version)
    producer = NOBODY if error is not ErrorCode.NONE else decision.producer
    return end_answer(version, error, *producer)


def _error(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


@api(EndTxnRequest, EndTxnResponse, versions=range(6), quick=quick_end_txn, authorize=transactional_id_write)
async def end_txn(ctx: Context, request: EndTxnRequest) -> EndTxnResponse:
    """Commits or aborts a transaction."""
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    decision = await ctx.broker.transactions.end(
        request.transactional_id,
        EndTransaction(producer, request.committed, bumps_epoch=ctx.version >= BUMPS_EPOCH_SINCE),
    )
    if decision.error is not ErrorCode.NONE or ctx.version < BUMPS_EPOCH_SINCE:
        return EndTxnResponse(error_code=_error(decision.error, ctx.version))
    return EndTxnResponse(producer_id=decision.producer.producer_id, producer_epoch=decision.producer.epoch)

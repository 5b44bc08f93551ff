"""InitProducerId (22), v0-6. Gives a producer its id and epoch, and ends what another left open under its name.

v3 a producer may name its present id and epoch to have it bumped (KIP-360); an idempotent one, which has no
transactional id, always gets a new id. v4 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v5
TRANSACTION_ABORTABLE; v6 two-phase commit (KIP-939): with keepPreparedTxn an open transaction stays open, for the
producer that asks to end it, and with enable2Pc as well it has no timeout from then on. Until then a transaction
of such a producer has the timeout that it asks for.
"""

from __future__ import annotations

from headrace.handlers.context import Context, transactional_id_write
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.transactions.decision import TransactionDecision
from headrace.transactions.starting import InitProducer
from headrace.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_SINCE = 4


@api(InitProducerIdRequest, InitProducerIdResponse, versions=range(7), authorize=transactional_id_write)
async def init_producer_id(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Gives a producer its id and epoch."""
    decision = await _decide(ctx, request)
    error = decision.error
    if error is ErrorCode.PRODUCER_FENCED and ctx.version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error is not ErrorCode.NONE:
        return InitProducerIdResponse(error_code=error, producer_epoch=NO_EPOCH)
    return InitProducerIdResponse(
        producer_id=decision.producer.producer_id,
        producer_epoch=decision.producer.epoch,
        ongoing_txn_producer_id=decision.ongoing.producer_id,
        ongoing_txn_producer_epoch=decision.ongoing.epoch,
    )


async def _decide(ctx: Context, request: InitProducerIdRequest) -> TransactionDecision:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return TransactionDecision(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        try:
            producer_id = await ctx.broker.producer_ids.allocate()
        except KafkaError as error:
            return TransactionDecision(error.code)
        return TransactionDecision(producer=ProducerIdentity(producer_id, 0))
    return await ctx.broker.transactions.init_producer(
        InitProducer(
            request.transactional_id,
            request.transaction_timeout_ms,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            two_phase=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
        )
    )

"""InitProducerId (22), v0-5. Gives an idempotent producer its id, epoch 0.

v3 a producer may name its present id to have the epoch bumped (KIP-360); that is for transactional ones, an
idempotent one gets a new id. There are no transactions yet: a transactional id gets
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which ends every client at once. (They ask FindCoordinator first, which has
a place for a message.)
"""

from __future__ import annotations

from headrace.handlers.context import Context, transactional_id_write
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER = -1


@api(InitProducerIdRequest, InitProducerIdResponse, versions=range(6), authorize=transactional_id_write)
async def init_producer_id(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Gives a producer its id and epoch."""
    try:
        _check(request)
        producer_id = await ctx.broker.producer_ids.allocate()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=NO_PRODUCER)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _check(request: InitProducerIdRequest) -> None:
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

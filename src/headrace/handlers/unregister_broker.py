"""UnregisterBroker (64), v0. Forgets a broker that will not come back.

Registered brokers are those that live, and a living one is not forgotten: INVALID_REQUEST says to stop it first.
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@api(UnregisterBrokerRequest, UnregisterBrokerResponse, versions=range(1), authorize=cluster_alter)
def unregister_broker(ctx: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Forgets a broker that will not come back."""
    if request.broker_id not in ctx.broker.metadata.image.brokers:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker {request.broker_id} is not registered.",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"Broker {request.broker_id} is running: stop it first.",
    )

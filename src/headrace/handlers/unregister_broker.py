"""UnregisterBroker (64), v0. Forgets a broker that will not come back: its settings, and what it registered with.

One that runs is not forgotten (INVALID_REQUEST), and neither is one that partitions still name as a replica: it
may have records that nobody else has.
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.model.errors import KafkaError
from headrace.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@api(UnregisterBrokerRequest, UnregisterBrokerResponse, versions=range(1), authorize=cluster_alter)
@on_controller(UnregisterBrokerResponse)
async def unregister_broker(ctx: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Removes a broker that will not come back."""
    try:
        await ctx.broker.controller.unregister_broker(request.broker_id)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse(error_message=None)

"""BrokerHeartbeat (63), v0. A broker that wants to stop has its partitions led by others first (KIP-631).

Brokers only. Whether one lives is known from its session, so that is all it is used for. `should_shut_down` is
false while it leads partitions that others hold and are not in sync for: it may wait, or stop all the same.
`want_fence` is what it tells every other broker before that: it is about to stop (`departing`).
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_action
from headrace.handlers.registry import api
from headrace.model.errors import KafkaError
from headrace.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


@api(BrokerHeartbeatRequest, BrokerHeartbeatResponse, versions=range(1), authorize=cluster_action)
async def broker_heartbeat(ctx: Context, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    """Moves leadership away from a broker that wants to stop."""
    try:
        may_stop = False
        if request.want_fence:
            ctx.broker.departing.expect(request.broker_id, request.broker_epoch)
        if request.want_shut_down:
            may_stop = not await ctx.broker.controller.vacate(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return BrokerHeartbeatResponse(error_code=error.code)
    return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=may_stop)

"""Requests that only the controller can answer reach it from any broker (R-REP-3).

`@on_controller` stands below the registration of such an API: where this broker is not the controller, the request
is forwarded to the one that is, in the version it came in, and its answer comes back when this broker's own image
has caught up with it. Without a controller in time the handler itself answers, with NOT_CONTROLLER. A request that
another broker has sent on goes no further: brokers may disagree for a moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TypeVar

from headrace.handlers.context import Context
from headrace.metadata.layout import CHANGES
from headrace.model.errors import KafkaError
from headrace.replication.controller_link import BROKER_CLIENT_ID
from headrace.wire.schema import Request, Response

Rq = TypeVar("Rq", bound=Request)
Rs = TypeVar("Rs", bound=Response)
DEFAULT_TIMEOUT_SECONDS = 30.0

ForwardedHandler = Callable[[Context, Rq], Awaitable[Rs]]


def on_controller(answer: type[Rs]) -> Callable[[ForwardedHandler[Rq, Rs]], ForwardedHandler[Rq, Rs]]:
    def wrap(handler: ForwardedHandler[Rq, Rs]) -> ForwardedHandler[Rq, Rs]:
        @wraps(handler)
        async def forwarded(ctx: Context, request: Rq) -> Rs:
            broker = ctx.broker
            if broker.controller.active or (ctx.client_id or "").startswith(BROKER_CLIENT_ID):
                return await handler(ctx, request)
            timeout_ms = getattr(request, "timeout_ms", 0)
            timeout_s = timeout_ms / 1000 if timeout_ms > 0 else DEFAULT_TIMEOUT_SECONDS
            try:
                response = await broker.link.ask(request, answer, timeout_s, ctx.version)
            except KafkaError:
                return await handler(ctx, request)
            await broker.metadata.catch_up(CHANGES)
            await broker.replicas.settled()
            return response

        return forwarded

    return wrap

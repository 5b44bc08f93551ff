"""What the handlers of group APIs share: who asks, and what everybody may do with a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.groups.errors import Request
from headrace.groups.messages import Client, Reply
from headrace.handlers.context import Context
from headrace.services.groups.answer import Answer
from headrace.wire.schema import Response

# Kafka's numbers of ACL operations: read, delete, describe, and the settings of the group. Without ACLs all may.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
NOT_REQUESTED = -(1 << 31)

R = TypeVar("R", bound=Reply)
Rs = TypeVar("Rs", bound=Response)


def begin(ctx: Context, request: Request, kind: type[R], response_of: Callable[[R], Rs]) -> Rs | Awaitable[Rs]:
    """Ask the coordinator; the response itself if the answer is there at once, as it is to most heartbeats."""
    reply = ctx.broker.groups.begin(request)
    if type(reply) is Answer:
        return _later(reply, kind, response_of)
    assert isinstance(reply, kind), reply
    return response_of(reply)


async def _later(answer: Awaitable[Reply], kind: type[R], response_of: Callable[[R], Rs]) -> Rs:
    reply = await answer
    assert isinstance(reply, kind), reply
    return response_of(reply)


def client_of(ctx: Context) -> Client:
    """Kafka shows the host as Java does: a name, which we do not look up, then a slash, then the address."""
    return Client(ctx.client_id or "", f"/{ctx.client_host}")

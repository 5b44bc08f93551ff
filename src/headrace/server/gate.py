"""The gate that every request passes, hot and cold: who it is, what it may, how much, and what it costs.

Costs are counted always (`metrics.requests`). The rest is the guard's, if the dispatcher was given one: without it
everybody may do everything, and the hot path does not even look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.handlers.registry import HotHandler
from headrace.model.errors import KafkaError
from headrace.server.framing import FramedPending
from headrace.services.reply import CloseConnection, Piece, Reply

if TYPE_CHECKING:
    from headrace.handlers.registry import Api
    from headrace.server.exchange import Exchange

Framed = bytes | list[Piece] | FramedPending | None
"""An answer with its frame, one that is waited for, or none."""


class Guard(Protocol):
    """Authentication, authorisation and quotas: the security layer's."""

    def enter(self, exchange: Exchange, api: Api, request_bytes: int) -> None:
        """May this request be handled, as far as its API tells? `api.authorize` is the right that it needs.

        A `KafkaError` is answered where the API's response has a place for it, and ends the connection otherwise,
        as it does for Produce and Fetch. Rights on resources that the request names are asked for by its handler.
        Who is over a quota is held back with `exchange.hold_back`.
        """
        ...

    def leave(self, exchange: Exchange, api: Api, reply: Any) -> None:
        """A hot request was handled: `reply` is its body, waited for perhaps. For quotas on what is sent."""
        ...


def guarded(guard: Guard, api: Api, handle: HotHandler) -> HotHandler:
    """A hot handler behind the gate."""

    def pass_gate(exchange: Exchange, version: int, frame: memoryview, position: int) -> Reply:
        try:
            guard.enter(exchange, api, len(frame))
        except KafkaError as error:
            raise CloseConnection(f"{api.name} was refused with {error}") from error
        reply: Reply = handle(exchange, version, frame, position)
        guard.leave(exchange, api, reply)
        return reply

    return pass_gate

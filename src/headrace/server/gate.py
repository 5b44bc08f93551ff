"""The gate that every request passes, hot and cold: who it is, what it may, how much, and what it costs.

Costs are counted always (`metrics.requests`). The rest is the guard's, if the dispatcher was given one: without it
everybody may do everything, and the hot path does not even look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.server.framing import FramedPending
from headrace.services.reply import Pending, Piece

if TYPE_CHECKING:
    from headrace.handlers.context import Context, SaslConversation
    from headrace.handlers.registry import Api, ColdHandler, HotHandler
    from headrace.server.exchange import Exchange

Framed = bytes | list[Piece] | FramedPending | None
"""An answer with its frame, one that is waited for, or none."""
ColdBody = bytes | Pending


class Guard(Protocol):
    """Authentication, authorisation and quotas: the security layer's."""

    def login(self, exchange: Exchange) -> SaslConversation | None:
        """How this client logs in; None if no login is needed."""
        ...

    def enter(self, exchange: Exchange, api: Api, request_bytes: int) -> None:
        """May this cold request be decoded and handled at all?

        A `KafkaError` is answered where the API's response has a place for it, and ends the connection otherwise.
        """
        ...

    def cold(self, api: Api, handle: ColdHandler) -> ColdHandler:
        """The handler of a cold API behind the gate: it does what the principal may of what is asked."""
        ...

    def leave(self, exchange: Exchange, api: Api, context: Context, body: ColdBody, seconds: float) -> ColdBody:
        """A cold request was handled, or begun, which took the loop so long: what it is answered with."""
        ...

    def hot(self, api: Api, handle: HotHandler) -> HotHandler:
        """The same for Produce and Fetch, which come as frames."""
        ...

    def quick(self, api: Api, handle: HotHandler) -> HotHandler | None:
        """For the usual requests of a cold API; None leaves them to the cold path, to be refused in its words."""
        ...

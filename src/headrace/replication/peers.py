"""The way to other brokers: one connection to each for what is not replication itself, opened when first used.

A broker that was reached before, by this very registration, and whose port now refuses connections is dead: nobody
needs to wait for the end of its session (D6). One that never answered, or is only silent, is left to the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from headrace.client.errors import CannotReach, Reason
from headrace.metadata.image import BrokerImage, Endpoint, MetadataImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)


class Peer(Protocol):
    """A connection to another broker. What it raises when that fails is a `ClientError`."""

    @property
    def closed(self) -> bool: ...

    async def request(
        self, message: Request, answer: type[R], *, highest: int = ..., timeout_s: float | None = None
    ) -> R:
        """Ask in the highest version that both sides have, and that is not above `highest`."""
        ...

    def close(self) -> None: ...


Connect = Callable[[Endpoint], Awaitable[Peer]]


class Peers:
    def __init__(
        self,
        connect: Connect,
        image: Callable[[], MetadataImage],
        listener: str,
        on_dead: Callable[[BrokerImage], None] = lambda broker: None,
        on_lost: Callable[[], None] = lambda: None,
        on_handed_over: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_dead` is called with a broker that is dead, `on_lost` when the connection to a leader has ended.

        `on_handed_over` hears that a broker which was asked as the leader is not the leader any more.
        """
        self._connect = connect
        self.on_lost = on_lost
        self.on_handed_over = on_handed_over
        self._on_dead = on_dead
        self._reached: dict[int, int] = {}
        """The epoch of each broker's registration when a connection to it was opened."""
        self.image = image
        self._listener = listener
        self._open: dict[int, Peer] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    def endpoint(self, broker_id: int) -> Endpoint:
        """Where the other broker listens for its peers."""
        broker = self.image().brokers.get(broker_id)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not registered")
        return endpoint

    async def dial(self, broker_id: int) -> Peer:
        """Open a new connection for the caller alone."""
        endpoint = self.endpoint(broker_id)
        broker = self.image().brokers[broker_id]
        try:
            peer = await self._connect(endpoint)
        except CannotReach as error:
            if error.reason is Reason.REFUSED and self._reached.get(broker_id) == broker.epoch:
                del self._reached[broker_id]
                self._on_dead(broker)
            raise
        self._reached[broker_id] = broker.epoch
        return peer

    async def shared(self, broker_id: int) -> Peer:
        """The shared connection, for requests that do not wait long."""
        async with self._opening.setdefault(broker_id, asyncio.Lock()):
            peer = self._open.get(broker_id)
            if peer is None or peer.closed:
                peer = self._open[broker_id] = await self.dial(broker_id)
            return peer

    def close(self) -> None:
        for peer in self._open.values():
            peer.close()
        self._open.clear()

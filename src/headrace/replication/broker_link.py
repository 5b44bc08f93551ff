"""How anything on this broker asks another one, or itself: by a call, or over the connection to that one."""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

from headrace.replication.controller_link import NEWEST, LocalCall
from headrace.replication.peers import Peers
from headrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)


class BrokerLink:
    def __init__(self, peers: Peers, broker_id: int) -> None:
        self._peers = peers
        self.broker_id = broker_id
        self.call_here: LocalCall | None = None
        """Answers a request as this broker; set once the handlers are there."""

    async def ask(self, broker_id: int, request: Request, answer: type[R], timeout_s: float) -> R:
        """The answer in the newest version that both have. ClientError or KafkaError if there is none in time."""
        if broker_id == self.broker_id:
            assert self.call_here is not None
            return cast(R, await self.call_here(request, NEWEST))
        # In a task of its own: time limits need one, and handlers may run without.
        return await asyncio.ensure_future(self._remotely(broker_id, request, answer, timeout_s))

    async def _remotely(self, broker_id: int, request: Request, answer: type[R], timeout_s: float) -> R:
        peer = await self._peers.shared(broker_id)
        return await peer.request(request, answer, timeout_s=timeout_s)

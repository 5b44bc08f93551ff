"""How anything on this broker asks another one, or itself: by a call, or over a connection of its own to that one.

A request can wait for replication, and requests of one connection are answered in order. So each API has its own
connections: markers that wait for an in-sync set hold up neither the question of a partition nor changes of that
set, which go over the shared connections (`peers.py`).
"""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

from headrace.client.errors import ClientError
from headrace.replication.controller_link import NEWEST, LocalCall
from headrace.replication.peers import Peer, Peers
from headrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)


class BrokerLink:
    def __init__(self, peers: Peers, broker_id: int) -> None:
        self._peers = peers
        self._broker_id = broker_id
        self._open: dict[tuple[int, int], Peer] = {}
        """By broker and API."""
        self._opening: dict[tuple[int, int], asyncio.Lock] = {}
        self.call_here: LocalCall | None = None
        """Answers a request as this broker; set once the handlers are there."""

    async def ask(self, broker_id: int, request: Request, answer: type[R], timeout_s: float) -> R:
        """The answer in the newest version that both have. ClientError or KafkaError if there is none in time."""
        if broker_id == self._broker_id:
            assert self.call_here is not None
            return cast(R, await self.call_here(request, NEWEST))
        # In a task of its own: time limits need one, and handlers may run without.
        return await asyncio.ensure_future(self._remotely(broker_id, request, answer, timeout_s))

    async def _remotely(self, broker_id: int, request: Request, answer: type[R], timeout_s: float) -> R:
        peer = await self._peer(broker_id, request.api_key)
        try:
            return await peer.request(request, answer, timeout_s=timeout_s)
        except ClientError:
            peer.close()  # the next request does not wait behind this one
            raise

    async def _peer(self, broker_id: int, api_key: int) -> Peer:
        key = broker_id, api_key
        async with self._opening.setdefault(key, asyncio.Lock()):
            peer = self._open.get(key)
            if peer is None or peer.closed:
                peer = self._open[key] = await self._peers.dial(broker_id)
            return peer

    def close(self) -> None:
        for peer in self._open.values():
            peer.close()
        self._open.clear()

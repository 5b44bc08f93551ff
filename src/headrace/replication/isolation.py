"""A broker that reaches only a minority of the registered brokers gives up its place (ADR 0017).

Cut off from its peers and not from the store it would otherwise stay a member: nobody may replace it, and what it
leads commits nothing; as the controller it lets no in-sync set change. So every broker asks each other one now and
then; an answer shows that both directions work. Who has heard for long from fewer than half, itself included,
removes its own registration, and registers again when it hears from enough. A wrong suspicion costs a change of
leaders and no record, as when it is taken for dead. Of two halves of the same size neither gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from headrace.client.errors import ClientError
from headrace.env import Env
from headrace.metadata.image import BrokerImage, MetadataImage
from headrace.model.errors import KafkaError
from headrace.replication.broker_link import BrokerLink
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SESSION_TIMEOUTS = 2.0
"""How long others must be silent, in session timeouts: dead hosts have lost their registration by then."""
LOOKS = 6
"""The number of checks in that time."""
SMALLEST_CLUSTER = 3

Withdraw = Callable[[BrokerImage], Coroutine[Any, Any, None]]


class Isolation:
    def __init__(
        self,
        env: Env,
        broker_id: int,
        link: BrokerLink,
        image: Callable[[], MetadataImage],
        session_seconds: float,
        withdraw: Withdraw,
    ) -> None:
        self._env = env
        self._broker_id = broker_id
        self._link = link
        self._image = image
        self._limit = SESSION_TIMEOUTS * session_seconds
        self._withdraw = withdraw
        self._heard: dict[int, tuple[int, float]] = {}
        """For each other broker, the epoch of its registration, and when it last answered or was first seen."""
        self._withdrawing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Check regularly, until cancelled."""
        while True:
            await self._env.clock.sleep(self._limit / LOOKS)
            await self._look()

    async def _look(self) -> None:
        others = self._others()
        now = self._env.clock.monotonic()
        known = self._heard
        self._heard = {
            other.id: known[other.id] if known.get(other.id, (-1, 0.0))[0] == other.epoch else (other.epoch, now)
            for other in others
        }
        if len(others) + 1 >= SMALLEST_CLUSTER:
            await asyncio.gather(*(self._ask(other) for other in others))
        own = self._image().brokers.get(self._broker_id)
        idle = self._withdrawing is None or self._withdrawing.done()
        if own is not None and idle and self.is_cut_off():
            self._withdrawing = self._env.background.start("Leaving the cluster to others", self._withdraw(own))

    async def _ask(self, other: BrokerImage) -> None:
        request = ApiVersionsRequest(client_software_name="headrace", client_software_version="0")
        with suppress(ClientError, KafkaError):
            await self._link.ask(other.id, request, ApiVersionsResponse, self._limit / LOOKS)
            self._heard[other.id] = (other.epoch, self._env.clock.monotonic())

    def is_cut_off(self) -> bool:
        """Whether this broker and those that it hears from are fewer than half of the registered ones."""
        others = self._others()
        if len(others) + 1 < SMALLEST_CLUSTER:
            return False
        oldest = self._env.clock.monotonic() - self._limit
        silent = sum(self._heard[other.id][1] < oldest for other in others if other.id in self._heard)
        return (len(others) + 1 - silent) * 2 < len(others) + 1

    def _others(self) -> list[BrokerImage]:
        return [broker for broker in self._image().brokers.values() if broker.id != self._broker_id]

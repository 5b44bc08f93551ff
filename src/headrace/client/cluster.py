"""A cluster seen by a client: the way in, what it looks like, and a connection to whichever broker is meant.

Connections are opened on first use and kept. A request that fails with a retriable error, or whose connection is
lost, is tried again with back-off until `request_timeout_s` has passed: see `retrying`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

from headrace.client.address import Address
from headrace.client.connection import ClientConnection, ClientSettings, open_connection
from headrace.client.entering import first_to_answer
from headrace.client.errors import ClientError, ConnectionLost
from headrace.client.requests import (
    GROUP_COORDINATOR,
    coordinator_found,
    coordinator_request,
    is_passing,
    metadata_request,
    metadata_view,
)
from headrace.client.view import BrokerView, ClusterView
from headrace.env import Env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.metadata import MetadataResponse

T = TypeVar("T")


class Cluster:
    def __init__(self, env: Env, bootstrap: tuple[Address, ...], settings: ClientSettings | None = None) -> None:
        self.env = env
        self.settings = settings or ClientSettings()
        self.bootstrap = bootstrap
        self._entry: ClientConnection | None = None
        self._entering = asyncio.Lock()
        self._connections: dict[int, ClientConnection] = {}
        self._opening: dict[int, asyncio.Lock] = {}
        self._brokers: dict[int, BrokerView] = {}
        self._reached: set[Address] = set()
        """Brokers that answered once: they may be restarting, where others are probably a mistake."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in (self._entry, *self._connections.values()):
            if connection is not None:
                connection.close()
        self._entry = None
        self._connections.clear()

    async def entry(self) -> ClientConnection:
        """A connection to any broker: the first of the bootstrap list that answers, then the brokers it named."""
        async with self._entering:
            if self._entry is None or self._entry.closed:
                self._entry = await self._enter()
            return self._entry

    async def _enter(self) -> ClientConnection:
        known = (broker.address for broker in self._brokers.values())
        addresses = list(dict.fromkeys((*self.bootstrap, *known)))
        connection = await first_to_answer(addresses, lambda address: open_connection(address, self.settings))
        self._reached.add(connection.address)
        return connection

    async def metadata(
        self, topics: Iterable[str] | None = None, of: ClientConnection | None = None
    ) -> ClusterView:
        """The cluster now, with the topics named (all of them by default). Creates no topic.

        `of` is the broker to ask, if not any will do: they learn of changes at different moments.
        """
        entry = of if of is not None else await self.entry()
        view = metadata_view(await entry.request(metadata_request(topics), MetadataResponse))
        self._brokers = dict(view.brokers)
        return view

    async def broker(self, broker_id: int) -> ClientConnection:
        """A connection to one broker, at the address that the cluster gives for it."""
        async with self._opening.setdefault(broker_id, asyncio.Lock()):
            connection = self._connections.get(broker_id)
            if connection is not None and not connection.closed:
                return connection
            if broker_id not in self._brokers:
                await self.metadata([])
            known = self._brokers.get(broker_id)
            if known is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id} in the cluster")
            connection = await open_connection(known.address, self.settings, broker_id)
            self._connections[broker_id] = connection
            self._reached.add(known.address)
            return connection

    async def controller(self) -> ClientConnection:
        view = await self.metadata([])
        if view.controller_id < 0:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        return await self.broker(view.controller_id)

    async def coordinator(self, key: str, kind: int = GROUP_COORDINATOR) -> ClientConnection:
        """The broker that coordinates a group or a transactional id."""
        entry = await self.entry()
        version = entry.version_for(FindCoordinatorRequest)
        response = await entry.request(coordinator_request(version, key, kind), FindCoordinatorResponse)
        found = coordinator_found(version, response)
        self._brokers[found.id] = found
        return await self.broker(found.id)

    async def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Which broker leads which of the partitions now."""
        wanted = list(partitions)
        view = await self.metadata(dict.fromkeys(partition.topic for partition in wanted))
        groups: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            groups.setdefault(view.leader(partition), []).append(partition)
        return groups

    async def retrying(self, attempt: Callable[[], Awaitable[T]], *, repeatable: bool = True) -> T:
        """`attempt` until it succeeds, fails for good, or the time is up.

        A missing topic is final: waiting for somebody to create it is not what a caller expects. Where an attempt
        must not be made twice (`repeatable=False`), so is a lost connection: it may have taken effect.
        """
        clock = self.env.clock
        deadline = clock.monotonic() + self.settings.request_timeout_s
        pause = self.settings.retry_backoff_s
        while True:
            try:
                return await attempt()
            except (KafkaError, ClientError) as error:
                lost = isinstance(error, ConnectionLost) and not repeatable
                passing = not lost and is_passing(error, self._reached.__contains__)
                if not passing or clock.monotonic() + pause > deadline:
                    raise
            await clock.sleep(pause)
            pause = min(2 * pause, self.settings.retry_backoff_max_s)

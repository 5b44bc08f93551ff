"""When the ZooKeeper store asks its server to catch up before it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from headrace.coordination.contract import Unknown
from headrace.coordination.watches import LoopSession
from headrace.coordination.zookeeper import ZooKeeperStore
from headrace.coordination.zookeeper_client import ZooKeeperClient
from headrace.env.real import real_env


class FakeClient:
    """Answers reads at once, and a sync when the test says so."""

    def __init__(self) -> None:
        self.syncs: list[asyncio.Future[None]] = []

    async def call(self, request: object, path: str) -> None:
        self.syncs.append(asyncio.get_running_loop().create_future())
        await self.syncs[-1]

    async def call_all(self, requests: Sequence[object], paths: Sequence[str]) -> list[Any]:
        return [b"" for _ in requests]

    async def syncing(self, number: int) -> asyncio.Future[None]:
        while len(self.syncs) < number:
            await asyncio.sleep(0)
        return self.syncs[number - 1]


def store_of(client: FakeClient) -> ZooKeeperStore:
    env = real_env()
    session = LoopSession("1", 6.0, env.clock.boottime())
    return ZooKeeperStore(env, cast(ZooKeeperClient, client), "", session)


async def test_a_reconnection_while_it_catches_up_asks_for_that_again() -> None:
    """It read from a server that may lack a write whose answer was lost with the connection."""
    client = FakeClient()
    store = store_of(client)
    store._on_connected()
    async with asyncio.timeout(60):
        first = asyncio.ensure_future(store.children("/a"))
        (await client.syncing(1)).set_result(None)
        store._on_connected()
        (await client.syncing(2)).set_result(None)
        await first
        await store.children("/a")
    assert len(client.syncs) == 2


async def test_a_failed_attempt_to_catch_up_is_repeated() -> None:
    client = FakeClient()
    store = store_of(client)
    store._on_connected()
    async with asyncio.timeout(60):
        first = asyncio.ensure_future(store.children("/a"))
        (await client.syncing(1)).set_exception(Unknown("/", "the connection broke"))
        with pytest.raises(Unknown):
            await first
        second = asyncio.ensure_future(store.children("/a"))
        (await client.syncing(2)).set_result(None)
        await second

"""The faults that the simulated store can have."""

from __future__ import annotations

import asyncio

import pytest

from headrace.coordination.contract import Node, SessionLost, Unknown
from headrace.coordination.memory import MemoryCluster
from headrace.env.real import real_env

ENV = real_env()


async def test_an_expired_session_loses_its_nodes_and_its_owner_is_told() -> None:
    cluster = MemoryCluster(ENV)
    owner, other = cluster.connect(), cluster.connect()
    told: list[str] = []
    changed = asyncio.Event()
    owner.session.on_lost(lambda: told.append("lost"))
    await owner.create("/a", b"", ephemeral=True)
    await other.watch("/a", changed.set)
    cluster.expire(owner.session.id)
    assert told == ["lost"]
    with pytest.raises(SessionLost):
        await owner.get("/a")
    await asyncio.wait_for(changed.wait(), 1)
    assert await other.get("/a") is None
    owner.session.on_lost(lambda: told.append("late"))
    assert told == ["lost", "late"]


async def test_a_call_that_is_under_way_when_the_session_expires_is_refused() -> None:
    cluster = MemoryCluster(ENV)
    owner, other = cluster.connect(), cluster.connect()
    cluster.latency = 0.01
    write = asyncio.create_task(owner.create("/a", b""))
    await asyncio.sleep(0)
    cluster.expire(owner.session.id)
    with pytest.raises(SessionLost):
        await write
    assert await other.get("/a") is None


@pytest.mark.parametrize("happens", [True, False])
async def test_an_unknown_result_may_have_happened(happens: bool) -> None:
    store = MemoryCluster(ENV).connect()
    store.lose_next_result(happens=happens)
    with pytest.raises(Unknown):
        await store.create("/a", b"x")
    assert await store.get("/a") == (Node(b"x", 0) if happens else None)
    await store.create("/b", b"")


async def test_watches_can_be_late() -> None:
    cluster = MemoryCluster(ENV)
    store = cluster.connect()
    cluster.watch_delay = 0.05
    calls: list[int] = []
    await store.watch("/a", lambda: calls.append(1))
    await store.create("/a", b"")
    await store.get("/a")
    assert not calls
    await asyncio.sleep(0.1)
    assert calls

"""The faults that the simulated store can have."""

from __future__ import annotations

import asyncio

import pytest

from headrace.coordination.contract import Create, SessionLost, TreeNode, Unknown
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
    await asyncio.wait_for(changed.wait(), 60)
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
    assert await store.get("/a") == (TreeNode(b"x", 0) if happens else None)
    await store.create("/b", b"")


async def test_watches_can_be_late() -> None:
    cluster = MemoryCluster(ENV)
    store = cluster.connect()
    cluster.watch_delay = 0.5
    called = asyncio.Event()
    await store.watch("/a", called.set)
    await store.create("/a", b"")
    await store.get("/a")
    assert not called.is_set()
    await asyncio.wait_for(called.wait(), 60)


async def test_a_broker_that_is_cut_off_loses_its_session_and_hears_of_it_later() -> None:
    cluster = MemoryCluster(ENV)
    owner = await cluster.open(ENV, "one", timeout=1.0)
    other = await cluster.open(ENV, "other")
    lost, changed = asyncio.Event(), asyncio.Event()
    owner.session.on_lost(lost.set)
    await owner.create("/a", b"", ephemeral=True)
    await other.watch("/a", changed.set)
    cluster.unreachable.add("one")
    with pytest.raises(Unknown):
        await owner.renew()
    with pytest.raises(Unknown):
        await cluster.open(ENV, "one")
    await asyncio.wait_for(changed.wait(), 60)
    assert await other.get("/a") is None
    assert not owner.session.lost
    cluster.unreachable.clear()
    await asyncio.wait_for(lost.wait(), 60)


async def test_what_changed_while_a_broker_was_cut_off_is_announced_when_it_is_back() -> None:
    cluster = MemoryCluster(ENV)
    watcher, writer = await cluster.open(ENV, "one"), await cluster.open(ENV, "other")
    changed = asyncio.Event()
    await watcher.watch("/a", changed.set)
    cluster.unheard.add("one")
    await writer.create("/a", b"")
    await asyncio.sleep(0.15)
    assert not changed.is_set()
    with pytest.raises(Unknown):
        await watcher.put("/a", b"did happen", 0)
    cluster.unheard.clear()
    await asyncio.wait_for(changed.wait(), 60)
    assert await watcher.get("/a") == TreeNode(b"did happen", 1)


async def test_a_part_of_all_results_can_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.coordination.memory.CUT_OFF_SECONDS", 0.001)
    cluster = MemoryCluster(ENV)
    store = cluster.connect()
    cluster.unknown_rate = 1.0
    for number in range(40):
        with pytest.raises(Unknown):
            await store.create(f"/{number:02}", b"")
    cluster.unknown_rate = 0.0
    assert 0 < len(await store.children("/")) < 40


async def test_a_write_that_zookeeper_would_refuse_is_refused() -> None:
    store = MemoryCluster(ENV).connect()
    with pytest.raises(AssertionError, match="split it"):
        await store.multi([Create("/a", bytes(600_000)), Create("/b", bytes(600_000))])

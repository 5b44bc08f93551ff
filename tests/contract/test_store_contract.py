"""The promises of `coordination.contract`, held by every driver (architecture D4, R-REP-5)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest

from headrace.coordination.contract import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Put,
    SessionLost,
    Store,
    TreeNode,
)
from headrace.coordination.lease import LeaseKeeper, LeaseState
from headrace.coordination.memory import MemoryCluster
from headrace.coordination.sqlite import open_sqlite_store
from headrace.coordination.zookeeper import open_zookeeper_store
from headrace.env.real import real_env
from headrace.testing.zookeeper import ZooKeeperServer

ENV = real_env()
LONG_TIMEOUT = 15.0
SHORT_TIMEOUT = 1.5


class Connect(Protocol):
    async def __call__(self, timeout: float = LONG_TIMEOUT) -> Store:
        """Another session on the same tree."""
        ...


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
async def connect(request: pytest.FixtureRequest, tmp_path: Path, chroot: str) -> AsyncIterator[Connect]:
    stores: list[Store] = []
    cluster = MemoryCluster(ENV)

    async def connect(timeout: float = LONG_TIMEOUT) -> Store:
        if request.param == "memory":
            stores.append(cluster.connect(timeout=timeout))
        elif request.param == "zookeeper":
            server: ZooKeeperServer = request.getfixturevalue("zookeeper")
            stores.append(await open_zookeeper_store(ENV, [server.connect], chroot, timeout, 20.0))
        else:
            stores.append(await open_sqlite_store(ENV, str(tmp_path / "cluster.db"), timeout))
        return stores[-1]

    yield connect
    for store in stores:
        await store.close()


@pytest.fixture
async def store(connect: Connect) -> Store:
    return await connect()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_created_node_is_read_with_version_0(store: Store) -> None:
    await store.create("/a", b"one")
    assert await store.get("/a") == TreeNode(b"one", 0)
    assert await store.get("/b") is None


async def test_create_refuses_a_second_node(store: Store) -> None:
    await store.create("/a", b"one")
    with pytest.raises(NodeExists) as caught:
        await store.create("/a", b"two")
    assert caught.value.path == "/a"
    assert await store.get("/a") == TreeNode(b"one", 0)


async def test_create_needs_the_parent_unless_told_to_make_it(store: Store) -> None:
    with pytest.raises(NoNode):
        await store.create("/a/b/c", b"x")
    await store.create("/a/b/c", b"x", make_parents=True)
    assert await store.get("/a/b") == TreeNode(b"", 0)
    assert await store.get("/a/b/c") == TreeNode(b"x", 0)


async def test_make_parents_leaves_nothing_when_the_create_fails(store: Store) -> None:
    await store.create("/a", b"", ephemeral=True)
    with pytest.raises(NoChildrenForEphemerals):
        await store.create("/a/b/c", b"x", make_parents=True)
    assert await store.children("/a") == []


async def test_ensure_makes_what_is_missing_and_keeps_what_is_there(store: Store) -> None:
    await store.create("/a", b"kept")
    await store.ensure("/a/b/c")
    await store.ensure("/a/b/c")
    assert await store.get("/a") == TreeNode(b"kept", 0)
    assert await store.get("/a/b/c") == TreeNode(b"", 0)


async def test_put_checks_the_version_and_adds_one(store: Store) -> None:
    await store.create("/a", b"0")
    assert await store.put("/a", b"1", 0) == 1
    with pytest.raises(BadVersion):
        await store.put("/a", b"2", 0)
    assert await store.put("/a", b"2", ANY_VERSION) == 2
    assert await store.get("/a") == TreeNode(b"2", 2)
    with pytest.raises(NoNode):
        await store.put("/b", b"", ANY_VERSION)


async def test_delete_checks_version_and_children(store: Store) -> None:
    await store.create("/a/b", b"", make_parents=True)
    with pytest.raises(NotEmpty):
        await store.delete("/a", ANY_VERSION)
    with pytest.raises(BadVersion):
        await store.delete("/a/b", 7)
    await store.delete("/a/b", 0)
    await store.delete("/a", ANY_VERSION)
    assert await store.get("/a") is None
    with pytest.raises(NoNode):
        await store.delete("/a", ANY_VERSION)


async def test_a_node_made_again_starts_at_version_0(store: Store) -> None:
    await store.create("/a", b"old")
    await store.put("/a", b"newer", 0)
    await store.delete("/a", 1)
    await store.create("/a", b"new")
    assert await store.get("/a") == TreeNode(b"new", 0)


async def test_children_are_sorted_names_of_one_level(store: Store) -> None:
    for path in ("/a/y", "/a/x/deep", "/a/z", "/ab"):
        await store.create(path, b"", make_parents=True)
    assert await store.children("/a") == ["x", "y", "z"]
    assert await store.children("/nowhere") == []


async def test_get_many_answers_in_order(store: Store) -> None:
    await store.create("/a", b"1")
    await store.create("/b", b"2")
    assert await store.get_many(["/b", "/c", "/a"]) == [TreeNode(b"2", 0), None, TreeNode(b"1", 0)]
    assert await store.get_many([]) == []


async def test_multi_does_all_in_order(store: Store) -> None:
    await store.create("/a", b"")
    versions = await store.multi(
        [Check("/a", 0), Create("/a/b", b"1"), Create("/a/b/c", b"2"), Put("/a/b", b"3", 0), Delete("/a/b/c", 0)]
    )
    assert versions == [0, 0, 0, 1, -1]
    assert await store.get("/a/b") == TreeNode(b"3", 1)
    assert await store.children("/a/b") == []


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (Check("/a", 5), BadVersion),
        (Check("/none"), NoNode),
        (Create("/a", b""), NodeExists),
        (Put("/none", b""), NoNode),
        (Delete("/a"), NotEmpty),
        (Create("/none/b", b""), NoNode),
    ],
)
async def test_multi_does_nothing_if_one_operation_fails(
    store: Store, last: Check | Create | Put | Delete, error: type[Exception]
) -> None:
    await store.create("/a", b"before")
    await store.create("/gone", b"still here")
    with pytest.raises(error):
        await store.multi(
            [Put("/a", b"after"), Create("/a/b", b"", ephemeral=True), Delete("/gone"), Create("/new", b""), last]
        )
    assert await store.get("/a") == TreeNode(b"before", 0)
    assert await store.get_many(["/a/b", "/new"]) == [None, None]
    assert await store.get("/gone") == TreeNode(b"still here", 0)
    await store.create("/usable", b"", ephemeral=True)


async def test_concurrent_puts_with_one_version_let_one_through(connect: Connect) -> None:
    stores = [await connect() for _ in range(3)]
    await stores[0].create("/counter", b"0")

    async def increment(store: Store) -> int:
        failures = 0
        for _ in range(10):
            while True:
                node = await store.get("/counter")
                assert node is not None
                try:
                    await store.put("/counter", str(int(node.value) + 1).encode(), node.version)
                    break
                except BadVersion:
                    failures += 1
        return failures

    await asyncio.gather(*(increment(store) for store in stores))
    assert await stores[1].get("/counter") == TreeNode(b"30", 30)


async def test_ephemeral_nodes_go_with_their_session(connect: Connect) -> None:
    owner, other = await connect(), await connect()
    await owner.create("/ids", b"kept")
    await owner.create("/ids/0", b"gone", ephemeral=True)
    await other.create("/ids/1", b"kept", ephemeral=True)
    assert await other.children("/ids") == ["0", "1"]
    await owner.close()
    assert await other.children("/ids") == ["1"]
    assert await other.get("/ids") == TreeNode(b"kept", 0)


async def test_an_ephemeral_node_has_no_children(store: Store) -> None:
    await store.create("/a", b"", ephemeral=True)
    with pytest.raises(NoChildrenForEphemerals):
        await store.create("/a/b", b"")


async def test_sessions_have_ids_of_their_own(connect: Connect) -> None:
    assert (await connect()).session.id != (await connect()).session.id


async def test_a_closed_store_refuses(store: Store) -> None:
    await store.close()
    await store.close()
    assert not store.session.lost
    with pytest.raises(SessionLost):
        await store.get("/a")
    with pytest.raises(SessionLost):
        await store.create("/a", b"")


@pytest.mark.parametrize("own", [True, False], ids=["own change", "another session's change"])
async def test_a_watch_is_called_for_every_kind_of_change(connect: Connect, own: bool) -> None:
    watcher = await connect()
    writer = watcher if own else await connect()
    calls: list[int] = []
    await watcher.watch("/a", lambda: calls.append(1))

    async def seen(change: Awaitable[object]) -> None:
        calls.clear()
        await change
        await eventually(lambda: bool(calls))

    await seen(writer.create("/a", b""))
    await seen(writer.put("/a", b"1", ANY_VERSION))
    await seen(writer.create("/a/b", b""))
    await seen(writer.multi([Delete("/a/b"), Create("/a/c", b"")]))
    await seen(writer.delete("/a/c", ANY_VERSION))
    await seen(writer.delete("/a", ANY_VERSION))


async def test_a_watch_sees_the_end_of_another_session(connect: Connect) -> None:
    watcher, owner = await connect(), await connect()
    await watcher.create("/ids", b"")
    await owner.create("/ids/0", b"", ephemeral=True)
    changed = asyncio.Event()
    await watcher.watch("/ids", changed.set)
    changed.clear()
    await owner.close()
    async with asyncio.timeout(60):
        await changed.wait()
    assert await watcher.children("/ids") == []


async def test_a_watch_is_not_called_for_other_nodes_or_grandchildren(store: Store) -> None:
    await store.create("/a/b", b"", make_parents=True)
    calls: list[str] = []
    await store.watch("/a", lambda: calls.append("a"))
    await store.watch("/z", lambda: calls.append("z"))
    await store.create("/a/b/c", b"")
    await store.put("/a/b", b"", ANY_VERSION)
    await store.create("/z", b"")
    await eventually(lambda: bool(calls))
    assert calls == ["z"]


async def test_a_cancelled_watch_is_silent(store: Store) -> None:
    calls: list[str] = []
    first = await store.watch("/a", lambda: calls.append("first"))
    await store.watch("/a", lambda: calls.append("second"))
    first.cancel()
    first.cancel()
    await store.create("/a", b"")
    await eventually(lambda: bool(calls))
    assert calls == ["second"]


async def test_a_change_that_was_announced_can_be_read(connect: Connect) -> None:
    watcher, writer = await connect(), await connect()
    await writer.create("/a", b"0")
    seen: list[int] = []
    wake = asyncio.Event()
    await watcher.watch("/a", wake.set)

    async def follow() -> None:
        while not seen or seen[-1] < 20:
            await wake.wait()
            wake.clear()
            node = await watcher.get("/a")
            assert node is not None
            seen.append(int(node.value))

    async with asyncio.timeout(60):
        following = asyncio.create_task(follow())
        for number in range(1, 21):
            await writer.put("/a", str(number).encode(), ANY_VERSION)
        await following
    assert seen == sorted(seen)


async def test_a_renewal_moves_the_deadline_from_when_it_was_sent(store: Store) -> None:
    before = ENV.clock.boottime()
    await store.renew()
    after = ENV.clock.boottime()
    timeout = store.session.timeout
    assert before < store.session.deadline < after + timeout
    assert store.session.deadline > before + timeout / 2


async def test_a_session_that_is_not_renewed_ends(connect: Connect) -> None:
    watcher, owner = await connect(), await connect(SHORT_TIMEOUT)
    await watcher.create("/ids", b"")
    changed, lost = asyncio.Event(), asyncio.Event()
    owner.session.on_lost(lost.set)
    await owner.create("/ids/0", b"", ephemeral=True)
    await watcher.watch("/ids", changed.set)
    async with asyncio.timeout(60):
        while await watcher.children("/ids"):
            await changed.wait()
            changed.clear()
        assert ENV.clock.boottime() > owner.session.deadline, "the owner could still have thought it alive"
        await lost.wait()
    assert owner.session.lost
    assert owner.session.deadline < 0
    with pytest.raises(SessionLost):
        await owner.renew()
    with pytest.raises(SessionLost):
        await owner.create("/ids/0", b"", ephemeral=True)


async def test_a_session_outlives_its_timeout_while_its_loop_renews_it(connect: Connect) -> None:
    """On a machine that is too busy to renew in time it may end, but never before its deadline."""
    watcher, owner = await connect(), await connect(2.0)
    state = LeaseState(ENV.clock)
    assert not state.valid()
    await owner.create("/a", b"", ephemeral=True)
    first_end = ENV.clock.boottime() + 1.2 * owner.session.timeout
    keeping = asyncio.create_task(LeaseKeeper(ENV, owner, state, interval=0.1).run())
    while ENV.clock.boottime() < first_end:
        deadline = owner.session.deadline
        node = await watcher.get("/a")
        assert node is not None or ENV.clock.boottime() > deadline
        assert not state.valid() or state.deadline == owner.session.deadline
        await asyncio.sleep(0.05)
    keeping.cancel()
    await asyncio.wait([keeping])
    assert owner.session.deadline == -math.inf or owner.session.deadline > first_end - owner.session.timeout

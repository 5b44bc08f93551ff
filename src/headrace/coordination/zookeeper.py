"""The store of many machines: a ZooKeeper ensemble, which means what the contract means.

What is added here:
- A chroot: all paths lie below one node, so that several clusters share an ensemble. It is made if it is missing.
- A renewal is a *write*, to an ephemeral node `/leases/<session>` of our own: a server that is cut off from its
  leader still answers pings and reads, and only a write shows that the ensemble as a whole knows this session.
- Watches stay: ZooKeeper's are called once, so each is set again, before its callback. With a new connection all
  of them are set again and called.
- After an unknown result and after a lost connection the first read waits for a `sync`: another server may lag
  behind the one that took the write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import RolledBackError, RuntimeInconsistency
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import EventType, WatchedEvent
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from headrace.coordination.contract import (
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    Put,
    Session,
    SessionLost,
    StoreError,
    TreeNode,
    Unknown,
    Watch,
    ancestors_of,
    check_path,
    check_size,
)
from headrace.coordination.watches import LoopSession, LoopWatch
from headrace.coordination.zookeeper_access import kazoo_options, secure_tree
from headrace.coordination.zookeeper_client import ZookeeperCall, ZooKeeperClient, store_error
from headrace.coordination.zookeeper_login import NO_ACCESS_RULES, ZooKeeperAccess
from headrace.env import Env

ROOT = "/"
LEASES = "/leases"
RENEWAL_WAITS_PER_TIMEOUT = 3
"""A renewal that hangs is given up and asked again: the watchdog must see that the loop lives."""
MAX_ATTEMPTS = 20
"""To make missing parents, against others that make the same."""
_NOT_THE_CAUSE = (RolledBackError, RuntimeInconsistency)
"""What the other operations of a failed `multi` get."""


async def open_zookeeper_store(
    env: Env,
    servers: Sequence[str],
    chroot: str,
    timeout: float,
    connect_timeout: float,
    access: ZooKeeperAccess = NO_ACCESS_RULES,
) -> ZooKeeperStore:
    """Begin a session of `timeout` seconds, or what the servers grant.

    Servers are host:port; the chroot is '' or '/a/b'.
    ConnectionError if no server takes the session in time.
    """
    client = ZooKeeperClient(env, servers, timeout, kazoo_options(access))
    await client.open(connect_timeout)
    try:
        if access.own_nodes_only:
            await secure_tree(client, chroot)
        return await _begin(env, client, chroot)
    except BaseException:
        await client.close()
        raise


async def _begin(env: Env, client: ZooKeeperClient, chroot: str) -> ZooKeeperStore:
    sent = env.clock.boottime()
    shared = list(ancestors_of(chroot))  # with other clusters: open to them, whatever is below
    for path in (*ancestors_of(f"{chroot}{LEASES}"), f"{chroot}{LEASES}"):
        acl = OPEN_ACL_UNSAFE if path in shared else None
        try:
            await client.call(partial(_make, path, acl), path)
        except NodeExists:
            continue
    session = LoopSession(client.session_id, client.timeout, sent)
    store = ZooKeeperStore(env, client, chroot, session)
    await store.begin_lease()
    return store


class ZooKeeperStore:
    """`contract.Store` over a `ZooKeeperClient`."""

    def __init__(self, env: Env, client: ZooKeeperClient, chroot: str, session: LoopSession) -> None:
        self._env = env
        self._client = client
        self._chroot = chroot
        self._session = session
        self._watches: dict[str, list[LoopWatch]] = {}
        self._observers: dict[str, Callable[[WatchedEvent], None]] = {}
        """One function for each watched path: kazoo keeps a set, so setting it twice calls it once."""
        self._loop = asyncio.get_running_loop()
        self._doubts = self._synced = 0
        """How often the server may have come to lack something that was written, and up to which it caught up."""
        self._closed = False
        client.on_connected = self._on_connected
        client.on_lost = session.end

    @property
    def session(self) -> Session:
        return self._session

    # Reading

    async def get(self, path: str) -> TreeNode | None:
        (node,) = await self.get_many([path])
        return node

    async def get_many(self, paths: Sequence[str]) -> list[TreeNode | None]:
        if not paths:
            return []
        results = await self._read([_get(self._path(path)) for path in paths], paths)
        return [_node(result) for result in results]

    async def children(self, path: str) -> list[str]:
        whole = self._path(path)
        (result,) = await self._read([lambda kazoo: kazoo.get_children_async(whole)], [path])
        if isinstance(result, NoNode):
            return []
        if isinstance(result, BaseException):
            raise result
        return sorted(result)

    async def _read(self, requests: Sequence[ZookeeperCall], paths: Sequence[str]) -> list[Any]:
        self._check_open()
        while self._synced < self._doubts:
            doubts = self._doubts
            await self._client.call(lambda kazoo: kazoo.sync_async(self._path(ROOT)), ROOT)
            self._synced = max(self._synced, doubts)  # there may be another by now
        return await self._client.call_all(requests, paths)

    # Writing

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = False
    ) -> None:
        check_path(path)
        create = Create(path, value, ephemeral)
        if make_parents:
            await self._with_missing(list(ancestors_of(path)), create)
        else:
            await self.multi([create])

    async def ensure(self, path: str) -> None:
        check_path(path)
        if await self.get(path) is None:
            await self._with_missing([*ancestors_of(path), path])

    async def put(self, path: str, value: bytes, expected_version: int) -> int:
        (version,) = await self.multi([Put(path, value, expected_version)])
        return version

    async def delete(self, path: str, expected_version: int) -> None:
        await self.multi([Delete(path, expected_version)])

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        self._check_open()
        for op in ops:
            check_path(op.path)
        check_size(ops)
        if not ops:
            return []

        def send(kazoo: KazooClient) -> IAsyncResult:
            transaction = kazoo.transaction()
            for op in ops:
                _add(transaction, op, self._path(op.path))
            return transaction.commit_async()

        try:
            results = await self._client.call(send, ops[0].path)
        except Unknown:
            self._doubts += 1
            raise
        for op, result in zip(ops, results, strict=True):
            if isinstance(result, BaseException) and not isinstance(result, _NOT_THE_CAUSE):
                raise store_error(result, op.path)
        return [_version(op, result) for op, result in zip(ops, results, strict=True)]

    async def _with_missing(self, parents: Sequence[str], *ops: Op) -> None:
        """One write of the operations and of the parents that they lack."""
        for _ in range(MAX_ATTEMPTS):
            nodes = await self.get_many(parents)
            missing = [Create(path, b"") for path, node in zip(parents, nodes, strict=True) if node is None]
            try:
                await self.multi([*missing, *ops])
                return
            except NodeExists as error:
                if error.path in [op.path for op in ops]:
                    raise
        raise Unknown(parents[-1], "others keep creating and removing its parents")

    # The lease

    async def begin_lease(self) -> None:
        path = self._lease_path()
        await self._client.call(lambda kazoo: kazoo.create_async(path, b"", ephemeral=True), LEASES)

    async def renew(self) -> None:
        self._check_open()
        sent = self._env.clock.boottime()
        self._client.asks_for_renewal(sent)
        path = self._lease_path()
        try:
            async with asyncio.timeout(self._session.timeout / RENEWAL_WAITS_PER_TIMEOUT):
                await self._client.call(lambda kazoo: kazoo.set_async(path, b""), LEASES)
        except TimeoutError:
            raise Unknown(LEASES, "ZooKeeper has not confirmed the renewal yet") from None
        except NoNode:  # Somebody has removed it by hand.
            await self.begin_lease()
        except SessionLost:
            self._session.end()
            raise
        self._session.renewed(sent)

    def _lease_path(self) -> str:
        return f"{self._chroot}{LEASES}/{self._session.id}"

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.active = False
        self._watches.clear()
        await self._client.close()

    # Watches

    async def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        check_path(path)
        self._check_open()
        watch = LoopWatch(path, callback, self._cancel)
        self._watches.setdefault(path, []).append(watch)
        try:
            await self._observe(path)
        except BaseException:
            watch.cancel()
            raise
        return watch

    async def _observe(self, path: str) -> None:
        """Watch for the next change of the node and of its children."""
        observer = self._observers.setdefault(path, partial(self._on_event, path))
        whole = self._path(path)
        node, children = await self._client.call_all(
            [
                lambda kazoo: kazoo.exists_async(whole, watch=observer),
                lambda kazoo: kazoo.get_children_async(whole, watch=observer),
            ],
            [path, path],
        )
        # Without the node there are no children to watch; its creation will be told.
        for result in (node, children):
            if isinstance(result, BaseException) and not isinstance(result, NoNode):
                raise result

    def _on_event(self, path: str, event: WatchedEvent) -> None:
        """In kazoo's thread."""
        if event.type != EventType.NONE and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._follow, [path])

    def _on_connected(self) -> None:
        self._doubts += 1
        self._follow(list(self._watches))

    def _follow(self, paths: Sequence[str]) -> None:
        if not self._closed:
            self._env.background.start("Watching ZooKeeper", self._observe_again(paths))

    async def _observe_again(self, paths: Sequence[str]) -> None:
        """Set the watches again, and then tell; if the connection breaks meanwhile, the next one does it all."""
        try:
            for path in paths:
                if self._watches.get(path):
                    await self._observe(path)
        except StoreError:
            return
        for path in paths:
            for watch in list(self._watches.get(path, ())):
                watch.fire()

    def _cancel(self, watch: LoopWatch) -> None:
        watches = self._watches.get(watch.path, [])
        if watch in watches:
            watches.remove(watch)

    def _path(self, path: str) -> str:
        return (self._chroot or path) if path == ROOT else self._chroot + path

    def _check_open(self) -> None:
        if self._closed or self._session.lost:
            raise SessionLost(ROOT, f"session {self._session.id} has ended")


def _make(path: str, acl: Sequence[ACL] | None, kazoo: KazooClient) -> IAsyncResult:
    return kazoo.create_async(path, b"", acl=acl)


def _get(path: str) -> ZookeeperCall:
    return lambda kazoo: kazoo.get_async(path)


def _node(result: Any) -> TreeNode | None:
    if isinstance(result, NoNode):
        return None
    if isinstance(result, BaseException):
        raise result
    value, stat = result
    return TreeNode(value, stat.version)


def _add(transaction: TransactionRequest, op: Op, path: str) -> None:
    match op:
        case Create():
            transaction.create(path, op.value, ephemeral=op.ephemeral)
        case Put():
            transaction.set_data(path, op.value, op.expected_version)
        case Delete():
            transaction.delete(path, op.expected_version)
        case Check():
            transaction.check(path, op.expected_version)


def _version(op: Op, result: Any) -> int:
    match op:
        case Create():
            return 0
        case Put():
            return int(result.version)
        case Delete():
            return -1
        case Check():
            return op.expected_version

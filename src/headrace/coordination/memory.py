"""The simulated store: one tree in memory, any number of sessions, and the faults a real ensemble has.

`MemoryCluster` is the ensemble; `open()` or `connect()` give a broker its store. The ensemble has an environment
of its own, and each broker may have another, whose clock drifts or is stopped with the broker. A test or the
simulation can
- let a session run out by not renewing it, or `expire` it while its owner is alive;
- delay every call (`latency`) and watches (`watch_delay`), each by up to `jitter` seconds more; the calls of one
  session stay in order, as with ZooKeeper;
- make the result of a store's next write unknown, whether it happened or not (`lose_next_result`), or that of a
  part of all writes (`unknown_rate`);
- cut a broker off by its name: `unreachable` loses its requests, `unheard` the answers to them.
All chances come from the ensemble's random numbers and nothing depends on the order of a set: runs repeat exactly.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

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
    Op,
    Put,
    Session,
    SessionLost,
    TreeNode,
    Unknown,
    Watch,
    ancestors_of,
    check_path,
    check_size,
    parent_of,
)
from headrace.coordination.watches import LoopSession, LoopWatch
from headrace.env import Env

T = TypeVar("T")

ROOT = "/"
CUT_OFF_SECONDS = 0.05
"""What it takes a broker to see that the connection is gone, and how often it looks whether it is back."""


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    version: int
    owner: str | None


class MemoryCluster:
    """What all sessions share."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._entries: dict[str, _Entry] = {ROOT: _Entry(b"", 0, None)}
        self._children: dict[str, dict[str, None]] = {ROOT: {}}
        self._stores: dict[str, MemoryStore] = {}
        self._leases_end: dict[str, float] = {}
        self._sessions_made = 0
        self.latency = 0.0
        self.watch_delay = 0.0
        self.jitter = 0.0
        self.unknown_rate = 0.0
        self.unreachable: set[str] = set()
        """Names of brokers whose requests do not arrive."""
        self.unheard: set[str] = set()
        """Names of brokers that get no answers and no watches."""

    async def open(self, env: Env, name: str = "", timeout: float = math.inf) -> MemoryStore:
        """A session for the broker of this name and environment. `Unknown` if it is cut off."""
        await env.clock.sleep(self.delay(self.latency))
        if name in self.unreachable or name in self.unheard:
            await env.clock.sleep(CUT_OFF_SECONDS)
            raise Unknown(ROOT, "the store cannot be reached")
        return self.connect(env, name, timeout)

    def connect(self, env: Env | None = None, name: str = "", timeout: float = math.inf) -> MemoryStore:
        """As `open`, at once."""
        env = env or self._env
        self._sessions_made += 1
        session = LoopSession(f"session-{self._sessions_made}", timeout, env.clock.boottime())
        store = MemoryStore(self, env, name, session)
        self._stores[session.id] = store
        self.renew(session.id, timeout)
        if timeout < math.inf:
            self._env.clock.call_later(timeout, partial(self._look_at_lease, session.id))
        return store

    def renew(self, session_id: str, timeout: float) -> None:
        self._leases_end[session_id] = self._env.clock.boottime() + timeout

    def _look_at_lease(self, session_id: str) -> None:
        if session_id not in self._stores:
            return
        left = self._leases_end[session_id] - self._env.clock.boottime()
        if left > 0:
            self._env.clock.call_later(left, partial(self._look_at_lease, session_id))
            return
        store = self._stores[session_id]
        self.remove_session(session_id)
        store.hear_of_end()

    def expire(self, session_id: str) -> None:
        """End a session as an ensemble does that has not heard of it for too long; its owner is told at once."""
        store = self._stores[session_id]
        self.remove_session(session_id)
        store.end()

    def run_out(self, session_id: str) -> None:
        """As if it had not been renewed in time; its owner hears of it like of everything else."""
        self._leases_end[session_id] = self._env.clock.boottime()
        self._look_at_lease(session_id)

    def knows(self, session_id: str) -> bool:
        return session_id in self._stores

    def remove_session(self, session_id: str) -> None:
        self._stores.pop(session_id, None)
        self._leases_end.pop(session_id, None)
        owned = [path for path, entry in self._entries.items() if entry.owner == session_id]
        self.apply([Delete(path) for path in owned], session_id)

    def delay(self, seconds: float) -> float:
        return seconds + self.jitter * self._env.rng.random() if self.jitter else seconds

    def lost_result(self) -> bool | None:
        """Whether the next write happens although its result is lost; None if it is not lost."""
        if not self.unknown_rate or self._env.rng.random() >= self.unknown_rate:
            return None
        return self._env.rng.random() < 0.5

    def get(self, path: str) -> TreeNode | None:
        entry = self._entries.get(path)
        return TreeNode(entry.value, entry.version) if entry else None

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def missing(self, paths: Sequence[str]) -> list[Op]:
        return [Create(path, b"") for path in paths if path not in self._entries]

    def apply(self, ops: Sequence[Op], session_id: str) -> list[int]:
        versions: list[int] = []
        touched: dict[str, None] = {}
        undo: list[tuple[str, _Entry | None]] = []
        try:
            for op in ops:
                versions.append(self._apply(op, session_id, touched, undo))
        except BaseException:
            for path, before in reversed(undo):
                self._set(path, before)
            raise
        self._notify(touched)
        return versions

    def _apply(
        self, op: Op, session_id: str, touched: dict[str, None], undo: list[tuple[str, _Entry | None]]
    ) -> int:
        before = self._entries.get(op.path)
        after = _decide(op, before, session_id)
        if isinstance(op, Check):
            assert after is not None
            return after.version
        if isinstance(op, Create):
            self._check_parent(op.path)
        if after is None and self._children[op.path]:
            raise NotEmpty(op.path)
        undo.append((op.path, before))
        self._set(op.path, after)
        touched[op.path] = None
        if before is None or after is None:
            touched[parent_of(op.path)] = None
        return after.version if after else -1

    def _check_parent(self, path: str) -> None:
        parent = parent_of(path)
        entry = self._entries.get(parent)
        if entry is None:
            raise NoNode(parent, "the parent is missing")
        if entry.owner is not None:
            raise NoChildrenForEphemerals(parent)

    def _set(self, path: str, entry: _Entry | None) -> None:
        siblings = self._children[parent_of(path)]
        name = path[path.rindex("/") + 1 :]
        if entry is None:
            del self._entries[path]
            del self._children[path]
            del siblings[name]
        else:
            self._entries[path] = entry
            self._children.setdefault(path, {})
            siblings[name] = None

    def _notify(self, touched: dict[str, None]) -> None:
        for store in list(self._stores.values()):
            for path in touched:
                if store.watches(path):
                    self._env.clock.call_later(self.delay(self.watch_delay), partial(store.hear, path))


def _decide(op: Op, before: _Entry | None, session_id: str) -> _Entry | None:
    """The node after the operation; None if it is gone."""
    if isinstance(op, Create):
        if before is not None:
            raise NodeExists(op.path)
        return _Entry(op.value, 0, session_id if op.ephemeral else None)
    if before is None:
        raise NoNode(op.path)
    if op.expected_version not in (ANY_VERSION, before.version):
        raise BadVersion(op.path, f"expected {op.expected_version}, found {before.version}")
    match op:
        case Put():
            return _Entry(op.value, before.version + 1, before.owner)
        case Delete():
            return None
        case Check():
            return before


class MemoryStore:
    """`contract.Store` for one session of a `MemoryCluster`."""

    def __init__(self, cluster: MemoryCluster, env: Env, name: str, session: LoopSession) -> None:
        self._cluster = cluster
        self._env = env
        self._name = name
        self._session = session
        self._watches: dict[str, list[LoopWatch]] = {}
        self._missed: dict[str, None] = {}
        """Watched nodes that changed while this broker was cut off."""
        self._in_order = asyncio.Lock()
        self._closed = False
        self._lose_result: bool | None = None

    @property
    def session(self) -> Session:
        return self._session

    def lose_next_result(self, *, happens: bool) -> None:
        """The next write raises `Unknown`, and has happened or not."""
        self._lose_result = happens

    async def get(self, path: str) -> TreeNode | None:
        (node,) = await self.get_many([path])
        return node

    async def get_many(self, paths: Sequence[str]) -> list[TreeNode | None]:
        return await self._ask(lambda: [self._cluster.get(path) for path in paths])

    async def children(self, path: str) -> list[str]:
        return await self._ask(lambda: self._cluster.children(path))

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = False
    ) -> None:
        parents = list(ancestors_of(path)) if make_parents else []
        await self._write([Create(path, value, ephemeral)], parents)

    async def ensure(self, path: str) -> None:
        await self._write([], [*ancestors_of(path), path])

    async def put(self, path: str, value: bytes, expected_version: int) -> int:
        (version,) = await self._write([Put(path, value, expected_version)])
        return version

    async def delete(self, path: str, expected_version: int) -> None:
        await self._write([Delete(path, expected_version)])

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        return await self._write(ops)

    async def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        check_path(path)
        watch = LoopWatch(path, callback, self._cancel)
        await self._ask(lambda: self._watches.setdefault(path, []).append(watch))
        return watch

    async def renew(self) -> None:
        sent = self._env.clock.boottime()
        await self._ask(lambda: self._cluster.renew(self._session.id, self._session.timeout))
        self._session.renewed(sent)

    async def close(self) -> None:
        """A broker that is cut off cannot say so: its session then runs out."""
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        if not self._session.lost and self._name not in self._cluster.unreachable:
            self._cluster.remove_session(self._session.id)

    def end(self) -> None:
        """The ensemble has ended the session."""
        self._watches.clear()
        self._session.end()

    def watches(self, path: str) -> bool:
        return bool(self._watches.get(path))

    def hear(self, path: str) -> None:
        """The news of a change arrives, unless this broker is cut off; then it waits."""
        if self._is_cut_off():
            if not self._missed:
                self._env.clock.call_later(CUT_OFF_SECONDS, self._hear_missed)
            self._missed[path] = None
            return
        for watch in list(self._watches.get(path, ())):
            self._env.clock.call_soon(watch.fire)

    def hear_of_end(self) -> None:
        if self._is_cut_off():
            self._env.clock.call_later(CUT_OFF_SECONDS, self.hear_of_end)
        else:
            self._env.clock.call_later(self._cluster.delay(self._cluster.watch_delay), self.end)

    def _hear_missed(self) -> None:
        missed, self._missed = self._missed, {}
        if not self._closed:
            for path in missed:
                self.hear(path)

    def _is_cut_off(self) -> bool:
        return not self._closed and bool({self._name} & (self._cluster.unreachable | self._cluster.unheard))

    async def _write(self, ops: Sequence[Op], parents: Sequence[str] = ()) -> list[int]:
        for op in ops:
            check_path(op.path)
        check_size(ops)

        def write() -> list[int]:
            made = self._cluster.missing(parents)
            return self._cluster.apply([*made, *ops], self._session.id)[len(made) :]

        lost, self._lose_result = self._lose_result, None
        return await self._ask(write, self._cluster.lost_result() if lost is None else lost)

    async def _ask(self, work: Callable[[], T], result_lost: bool | None = None) -> T:
        """There, the work, and back: at least one turn of the loop. The result is lost if a bool says so."""
        async with self._in_order:
            self._check_open()
            cluster = self._cluster
            await self._env.clock.sleep(cluster.delay(cluster.latency / 2))
            self._check_open()
            if result_lost is False or self._name in cluster.unreachable:
                await self._env.clock.sleep(CUT_OFF_SECONDS)
                raise Unknown(ROOT, "the request was lost")
            if not cluster.knows(self._session.id):
                self.end()
                self._check_open()
            result = work()
            await self._env.clock.sleep(cluster.delay(cluster.latency / 2))
            if result_lost or self._name in cluster.unheard:
                await self._env.clock.sleep(CUT_OFF_SECONDS)
                raise Unknown(ROOT, "the answer was lost")
            return result

    def _check_open(self) -> None:
        if self._closed or self._session.lost:
            raise SessionLost(ROOT, f"session {self._session.id} has ended")

    def _cancel(self, watch: LoopWatch) -> None:
        watches = self._watches.get(watch.path, [])
        if watch in watches:
            watches.remove(watch)

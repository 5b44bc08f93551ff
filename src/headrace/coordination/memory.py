"""The simulated store: one tree in memory, any number of sessions, and the faults a real ensemble has.

`MemoryCluster` is the ensemble; `connect()` gives a broker its store. A test or the simulation can
- expire a session (`expire`): its ephemeral nodes go, its owner is told;
- delay watches (`watch_delay`, seconds) and every call (`latency`), by the environment's clock;
- make the result of a store's next write unknown, whether it happened or not (`lose_next_result`).
Nothing here depends on the order of a set, so a run repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.coordination.contract import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Put,
    Session,
    SessionLost,
    Unknown,
    Watch,
    ancestors_of,
    check_path,
    parent_of,
)
from headrace.coordination.watches import LoopSession, LoopWatch
from headrace.env import Env

ROOT = "/"


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
        self._sessions_made = 0
        self.latency = 0.0
        self.watch_delay = 0.0

    def connect(self) -> MemoryStore:
        self._sessions_made += 1
        store = MemoryStore(self, LoopSession(f"session-{self._sessions_made}"))
        self._stores[store.session.id] = store
        return store

    def expire(self, session_id: str) -> None:
        """End a session as an ensemble does that has not heard of it for too long."""
        store = self._stores[session_id]
        self.remove_session(session_id)
        store.end()

    def remove_session(self, session_id: str) -> None:
        self._stores.pop(session_id, None)
        owned = [path for path, entry in self._entries.items() if entry.owner == session_id]
        self.apply([Delete(path) for path in owned], session_id)

    async def travel(self) -> None:
        """The way to the ensemble and back: at least one turn of the loop."""
        await self._env.clock.sleep(self.latency)

    def get(self, path: str) -> Node | None:
        entry = self._entries.get(path)
        return Node(entry.value, entry.version) if entry else None

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
                    self._env.clock.call_later(self.watch_delay, partial(store.fire, path))


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

    def __init__(self, cluster: MemoryCluster, session: LoopSession) -> None:
        self._cluster = cluster
        self._session = session
        self._watches: dict[str, list[LoopWatch]] = {}
        self._closed = False
        self._lose_result: bool | None = None

    @property
    def session(self) -> Session:
        return self._session

    def lose_next_result(self, *, happens: bool) -> None:
        """The next write raises `Unknown`, and has happened or not."""
        self._lose_result = happens

    async def get(self, path: str) -> Node | None:
        (node,) = await self.get_many([path])
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        await self._travel()
        return [self._cluster.get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        await self._travel()
        return self._cluster.children(path)

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
        await self._travel()
        self._watches.setdefault(path, []).append(watch)
        return watch

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        if not self._session.lost:
            self._cluster.remove_session(self._session.id)

    def end(self) -> None:
        """The ensemble has ended the session."""
        self._watches.clear()
        self._session.end()

    def watches(self, path: str) -> bool:
        return bool(self._watches.get(path))

    def fire(self, path: str) -> None:
        for watch in list(self._watches.get(path, ())):
            watch.fire()

    async def _write(self, ops: Sequence[Op], parents: Sequence[str] = ()) -> list[int]:
        for op in ops:
            check_path(op.path)
        await self._travel()
        lose_result, self._lose_result = self._lose_result, None
        if lose_result is False:
            raise Unknown(ops[0].path if ops else ROOT, "the request was lost")
        made = self._cluster.missing(parents)
        versions = self._cluster.apply([*made, *ops], self._session.id)
        if lose_result:
            raise Unknown(ops[0].path if ops else ROOT, "the answer was lost")
        return versions[len(made) :]

    async def _travel(self) -> None:
        self._check_open()
        await self._cluster.travel()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed or self._session.lost:
            raise SessionLost(ROOT, f"session {self._session.id} has ended")

    def _cancel(self, watch: LoopWatch) -> None:
        watches = self._watches.get(watch.path, [])
        if watch in watches:
            watches.remove(watch)

"""A store that outlives its sessions: the parts of a broker hold this one, and a new session replaces a lost one.

- A call goes to the present session. Between two sessions it raises `SessionLost`, as it does when its session
  ends under it: nothing is tried again behind the caller's back.
- Watches are kept. With a new session all of them are called once, because anything may have changed meanwhile.
- `session.on_lost` calls back for each session that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.coordination.contract import Op, Session, SessionLost, Store, TreeNode, Watch
from headrace.coordination.watches import LoopWatch


class ReconnectingStore:
    """`contract.Store`; its owner calls `attach` with each new session's store."""

    def __init__(self) -> None:
        self._store: Store | None = None
        self._session = _PresentSession(self._require)
        self._watches: dict[LoopWatch, Watch | None] = {}

    async def attach(self, store: Store) -> None:
        """Use this store from now on, its predecessor no more. Call it again if it raises `Unknown`."""
        self._store = store
        self._session.follow(store.session)
        for watch in list(self._watches):
            if watch in self._watches:
                self._watches[watch] = await store.watch(watch.path, watch.fire)
        for watch in list(self._watches):
            watch.fire()

    @property
    def session(self) -> Session:
        return self._session

    async def get(self, path: str) -> TreeNode | None:
        return await self._require().get(path)

    async def get_many(self, paths: Sequence[str]) -> list[TreeNode | None]:
        return await self._require().get_many(paths)

    async def children(self, path: str) -> list[str]:
        return await self._require().children(path)

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = False
    ) -> None:
        await self._require().create(path, value, ephemeral=ephemeral, make_parents=make_parents)

    async def ensure(self, path: str) -> None:
        await self._require().ensure(path)

    async def put(self, path: str, value: bytes, expected_version: int) -> int:
        return await self._require().put(path, value, expected_version)

    async def delete(self, path: str, expected_version: int) -> None:
        await self._require().delete(path, expected_version)

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        return await self._require().multi(ops)

    async def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        watch = LoopWatch(path, callback, self._cancel)
        self._watches[watch] = None
        try:
            self._watches[watch] = await self._require().watch(path, watch.fire)
        except BaseException:
            self._watches.pop(watch, None)
            raise
        return watch

    async def renew(self) -> None:
        await self._require().renew()

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    def _require(self) -> Store:
        if self._store is None:
            raise SessionLost("/", "no session has been opened yet")
        return self._store

    def _cancel(self, watch: LoopWatch) -> None:
        inner = self._watches.pop(watch, None)
        if inner is not None:
            inner.cancel()


class _PresentSession:
    """`contract.Session` of whichever store is attached."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._present = store
        self._callbacks: list[Callable[[], None]] = []

    def follow(self, session: Session) -> None:
        session.on_lost(self._tell)

    @property
    def id(self) -> str:
        return self._present().session.id

    @property
    def lost(self) -> bool:
        return self._present().session.lost

    @property
    def timeout(self) -> float:
        return self._present().session.timeout

    @property
    def deadline(self) -> float:
        return self._present().session.deadline

    def on_lost(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        if self.lost:
            callback()

    def _tell(self) -> None:
        for callback in list(self._callbacks):
            callback()

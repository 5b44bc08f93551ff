"""The embedded store: one SQLite file shared by all broker processes of a machine.

All work on the file is done by one thread per store, in the order of the calls; results and watches come back to
the loop. Every `POLL_SECONDS` the same thread asks whether others wrote (one pragma) and whether other sessions'
processes live (one lock attempt each) and renew their leases (one small read each); the loop is not woken unless
there is something to tell. Only the lease is renewed on the loop itself: a transaction that waits for a slow
device must not hold it up.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.coordination.contract import (
    Create,
    Delete,
    Op,
    Put,
    Session,
    SessionLost,
    TreeNode,
    Unknown,
    Watch,
    check_path,
)
from headrace.coordination.sqlite_sessions import SessionFile
from headrace.coordination.sqlite_tree import SqliteTree, Stamp
from headrace.coordination.watches import LoopSession, LoopWatch
from headrace.env import Env

T = TypeVar("T")

DISK_FULL = "no space is left on its disk"
POLL_SECONDS = 0.1
SESSION_TOKEN_BYTES = 12
SESSION_TIMEOUT_SECONDS = 6.0

_logger = logging.getLogger(__name__)


async def open_sqlite_store(env: Env, path: str, timeout: float = SESSION_TIMEOUT_SECONDS) -> SqliteStore:
    """Open the store, creating it if the file is missing; its directory must exist. `timeout` is the session's.

    Raises `IncompatibleStore` if the file is of a newer release or no store, `OSError` if it cannot be opened.
    """
    thread = _StoreThread(env, path, timeout)
    store = SqliteStore(thread)
    await thread.open()
    return store


class SqliteStore:
    """`contract.Store` over a `_StoreThread`."""

    def __init__(self, thread: _StoreThread) -> None:
        self._thread = thread
        self._watches: dict[str, list[LoopWatch]] = {}
        thread.on_changes = self._fire

    @property
    def session(self) -> Session:
        return self._thread.session

    async def get(self, path: str) -> TreeNode | None:
        check_path(path)
        return await self._thread.run(lambda tree: tree.get(path))

    async def get_many(self, paths: Sequence[str]) -> list[TreeNode | None]:
        return await self._thread.run(lambda tree: tree.get_many(paths))

    async def children(self, path: str) -> list[str]:
        return await self._thread.run(lambda tree: tree.children(path))

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = False
    ) -> None:
        check_path(path)
        await self._thread.run(lambda tree: tree.apply([Create(path, value, ephemeral)], make_parents))

    async def ensure(self, path: str) -> None:
        check_path(path)
        await self._thread.run(lambda tree: tree.ensure(path))

    async def put(self, path: str, value: bytes, expected_version: int) -> int:
        (version,) = await self.multi([Put(path, value, expected_version)])
        return version

    async def delete(self, path: str, expected_version: int) -> None:
        await self.multi([Delete(path, expected_version)])

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        for op in ops:
            check_path(op.path)
        return await self._thread.run(lambda tree: tree.apply(ops))

    async def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        check_path(path)
        watch = LoopWatch(path, callback, self._cancel)
        self._watches.setdefault(path, []).append(watch)
        await self._thread.run(lambda tree: self._thread.observe(tree, path))
        return watch

    async def renew(self) -> None:
        await self._thread.renew()

    async def close(self) -> None:
        for watches in self._watches.values():
            for watch in watches:
                watch.active = False
        self._watches.clear()
        await self._thread.close()

    def _cancel(self, watch: LoopWatch) -> None:
        watches = self._watches.get(watch.path, [])
        if watch in watches:
            watches.remove(watch)

    def _fire(self, paths: list[str]) -> None:
        for path in paths:
            for watch in list(self._watches.get(path, ())):
                watch.fire()


def _no_listener(paths: list[str]) -> None:
    """The listener until the store has set its own."""


class _StoreThread:
    """Runs work on the tree in order; polls when there is none. Public methods are for the loop's thread."""

    def __init__(self, env: Env, path: str, timeout: float) -> None:
        self._env = env
        self._session_file: SessionFile | None = None
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Callable[[SqliteTree], object] | None] = queue.SimpleQueue()
        self._stamps: dict[str, Stamp] = {}
        self._closing = False
        self._lost = False
        self._noted: int | None = None
        """The errno of the last file system error that was logged."""
        self.session = LoopSession(env.rng.bytes(SESSION_TOKEN_BYTES).hex(), timeout, env.clock.boottime())
        self.on_changes: Callable[[list[str]], None] = _no_listener

    async def open(self) -> None:
        opened: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._main, args=(opened,), name="headrace-store", daemon=True).start()
        await opened

    async def run(self, work: Callable[[SqliteTree], T]) -> T:
        self._check_open()
        return await self._submit(work)

    async def renew(self) -> None:
        self._check_open()
        assert self._session_file is not None
        sent = self._env.clock.boottime()
        try:
            in_time = self._session_file.renew(sent)
        except OSError as error:
            raise Unknown(self._path, f"the lease could not be written: {error}") from error
        if not in_time:
            await self._renew_late(sent)
        self.session.renewed(sent)

    async def _renew_late(self, sent: float) -> None:
        try:
            await self._submit(lambda tree: tree.renew_late(sent))
        except SessionLost:
            self.session.end()
            raise

    def _check_open(self) -> None:
        if self._closing or self.session.lost:
            raise SessionLost(self._path, "the session has ended" if self.session.lost else "the store is closed")

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        try:
            await self._submit(SqliteTree.end_session)
        except Unknown as error:  # a full disk: no reason not to close everything else
            _logger.warning("The session could not be closed and will expire with its lease: %s", error)
        finally:
            closed: asyncio.Future[None] = self._submit(SqliteTree.close)
            self._jobs.put(None)
            await closed

    def _submit(self, work: Callable[[SqliteTree], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(lambda tree: self._complete(future, lambda: work(tree)))
        return future

    # From here on: the store's own thread.

    def observe(self, tree: SqliteTree, path: str) -> None:
        if path not in self._stamps:
            self._stamps[path] = tree.stamp(path)

    def _main(self, opened: asyncio.Future[None]) -> None:
        trees: list[SqliteTree] = []

        def open_tree() -> None:
            tree = SqliteTree(self._env, self._path, self.session.id, self.session.timeout)
            self._session_file = tree.session_file
            trees.append(tree)

        self._complete(opened, open_tree)
        for tree in trees:
            self._serve(tree)

    def _serve(self, tree: SqliteTree) -> None:
        now = self._env.clock.monotonic
        next_poll = now() + POLL_SECONDS
        while True:
            wait = next_poll - now()
            if wait <= 0:
                self._poll(tree)
                next_poll = now() + POLL_SECONDS
                continue
            try:
                job = self._jobs.get(timeout=wait)
            except queue.Empty:
                continue
            if job is None:
                return
            job(tree)
            if tree.wrote and not self._closing:
                self._guarded(lambda: self._report(tree))

    def _complete(self, future: asyncio.Future[T], work: Callable[[], T]) -> None:
        """Do the work here, and end the future with its result on the loop."""
        try:
            result = work()
        except sqlite3.Error as error:
            full = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"  # not every one has a name
            unknown = Unknown(self._path, DISK_FULL if full else str(error))
            unknown.__cause__ = error
            self._tell(_fail, future, unknown)
        except BaseException as error:
            self._tell(_fail, future, error)
        else:
            self._tell(_succeed, future, result)

    def _poll(self, tree: SqliteTree) -> None:
        if self._closing or self._lost:
            return
        self._guarded(tree.look_for_others)
        self._guarded(tree.remove_dead_sessions)
        if tree.wrote:
            self._guarded(lambda: self._report(tree))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do the work; the thread continues whatever fails: without it every call would wait forever."""
        try:
            work()
        except SessionLost:
            self._lose_session("its row is gone")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "") != "SQLITE_BUSY":
                self._lose_session(f"the store cannot be read: {error}")
        except OSError as error:
            self._note(error)
        except Exception as error:
            self._tell(self._env.background.fail, "The thread of the store", error)

    def _note(self, error: OSError) -> None:
        """Log an error once, such as too many open files; the next poll tries again."""
        if error.errno != self._noted:
            self._noted = error.errno
            _logger.warning("The sessions of other brokers in %s cannot be checked: %s", self._path, error)

    def _report(self, tree: SqliteTree) -> None:
        """Tell the loop which watched nodes have changed. A failed attempt is repeated."""
        if not tree.session_alive() and not self._closing:
            self._lose_session("another process removed it")
        stamps = {path: tree.stamp(path) for path in self._stamps}
        changed = [path for path, stamp in stamps.items() if stamp != self._stamps[path]]
        self._stamps = stamps
        tree.wrote = False
        if changed:
            self._tell(self.on_changes, changed)

    def _lose_session(self, reason: str) -> None:
        if self._lost:
            return
        self._lost = True
        _logger.error("coordination session %s in %s is lost: %s", self.session.id, self._path, reason)
        self._tell(self.session.end)

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        # A loop that was closed without closing the store (a crashing process) has no one left to notify.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)

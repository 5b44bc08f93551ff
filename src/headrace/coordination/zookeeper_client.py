"""kazoo on one event loop, for one session: what its threads find out comes to the loop, and its errors are ours.

Rules:
- The session is the one that `open` got. After an expiry kazoo would continue with another; we stop it instead.
- A request is not queued while no server can be reached: after a short wait it is `Unknown`. So is one that was
  under way when the connection broke.
- kazoo's thread keeps the session alive whatever the loop does. A watchdog ends the session when the loop has not
  asked for a renewal for a whole timeout: it may hang for hours and must not stay a leader meanwhile.
- The timeout that counts is what the servers granted, which kazoo keeps to itself: it is read where it arrives.
- A server that takes the connection and says nothing (one that is starting does) is given up after a moment. kazoo
  would wait for it until the session has ended, with other servers at hand.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    ZookeeperError,
)
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState

from headrace.coordination.contract import (
    AccessDenied,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionLost,
    StoreError,
    Unknown,
)
from headrace.env import Env

RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
LEAST_HANDSHAKE_SECONDS = 0.5
MOST_HANDSHAKE_SECONDS = 2.0
MOST_WAIT_FOR_SERVER_SECONDS = 1.0
WATCHDOG_LOOKS_PER_TIMEOUT = 10
SESSION_ID_BITS = 64

ZookeeperCall = Callable[[KazooClient], IAsyncResult]
_REFUSALS: Mapping[type[KazooException], type[StoreError]] = {
    NodeExistsError: NodeExists,
    NoNodeError: NoNode,
    BadVersionError: BadVersion,
    NotEmptyError: NotEmpty,
    NoChildrenForEphemeralsError: NoChildrenForEphemerals,
}
_logger = logging.getLogger(__name__)
_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.ERROR)
"""It reports every attempt to connect; we say what came of them."""


def store_error(error: BaseException, path: str) -> BaseException:
    """An error of kazoo as one of the contract's; any other as it is."""
    if isinstance(error, SessionExpiredError):
        return SessionLost(path, "ZooKeeper has ended the session")
    if isinstance(error, NoAuthError):
        return AccessDenied(path)
    for theirs, ours in _REFUSALS.items():
        if isinstance(error, theirs):
            return ours(path)
    if isinstance(error, KazooException):
        return Unknown(path, f"{type(error).__name__} {error}".strip())
    return error


class ZooKeeperClient:
    """Public methods are for the loop's thread."""

    def __init__(self, env: Env, servers: Sequence[str], timeout: float, options: Mapping[str, object]) -> None:
        """`options` are further ones of kazoo's client: credentials, ACLs, TLS."""
        self._env = env
        self._loop = asyncio.get_running_loop()
        self._servers = ",".join(servers)
        self._kazoo = KazooClient(
            self._servers, timeout, connection_retry=RECONNECT, logger=_kazoo_logger, **options
        )
        self._kazoo.add_listener(self._on_state)
        self._reachable = asyncio.Event()
        self._was_connected = False
        self._over = False
        """The session has ended, for whatever reason. Set by any thread, never cleared."""
        self._stopping = threading.Lock()
        self._stopped = threading.Event()
        self._finished: deque[tuple[asyncio.Future[Any], IAsyncResult]] = deque()
        self._delivery_is_due = False
        self._under_way: set[asyncio.Future[Any]] = set()
        self._last_asked = env.clock.boottime()
        self.timeout = timeout
        """Seconds, as granted."""
        self.on_connected: Callable[[], None] = _nobody
        """Called after each connection but the first."""
        self.on_lost: Callable[[], None] = _nobody
        self._note_granted_timeout()
        self._give_up_silent_servers(max(LEAST_HANDSHAKE_SECONDS, min(MOST_HANDSHAKE_SECONDS, timeout / 4)))

    @property
    def session_id(self) -> str:
        client_id = self._kazoo.client_id
        if client_id is None:
            raise Unknown("/", "the connection broke")
        return f"{client_id[0] % 2**SESSION_ID_BITS:016x}"

    async def open(self, connect_timeout: float) -> None:
        """Begin the session; ConnectionError if no server takes it in time."""
        self._kazoo.start_async()
        try:
            async with asyncio.timeout(connect_timeout):
                await self._reachable.wait()
        except TimeoutError:
            await self.close()
            raise ConnectionError(
                f"No ZooKeeper server of {self._servers} accepted a session within {connect_timeout:g} s"
            ) from None
        threading.Thread(target=self._watch_loop, name="headrace-watchdog", daemon=True).start()

    def asks_for_renewal(self, now: float) -> None:
        """The loop is alive."""
        self._last_asked = now

    async def call(self, request: ZookeeperCall, path: str) -> Any:
        """The result of one request; `path` is named in errors."""
        (result,) = await self.call_all([request], [path])
        if isinstance(result, BaseException):
            raise result
        return result

    async def call_all(self, requests: Sequence[ZookeeperCall], paths: Sequence[str]) -> list[Any]:
        """The results in order, errors among them. They are sent together, and done in order."""
        await self._wait_for_server(paths[0])
        futures: list[asyncio.Future[Any]] = [self._loop.create_future() for _ in requests]
        self._under_way.update(futures)
        for request, future in zip(requests, futures, strict=True):
            request(self._kazoo).rawlink(partial(self._on_finished, future))
        try:
            results = await asyncio.gather(*futures, return_exceptions=True)
        finally:
            self._under_way.difference_update(futures)
        return [
            store_error(result, path) if isinstance(result, BaseException) else result
            for result, path in zip(results, paths, strict=True)
        ]

    async def close(self) -> None:
        """End the session."""
        self.on_lost = self.on_connected = _nobody
        self._over = True
        await self._env.run_blocking(self._stop)

    async def _wait_for_server(self, path: str) -> None:
        if not self._reachable.is_set():
            # Not by asyncio.timeout, which needs a task: the first step of a request is done outside of one.
            waiting = asyncio.ensure_future(self._reachable.wait())
            try:
                await asyncio.wait([waiting], timeout=min(MOST_WAIT_FOR_SERVER_SECONDS, self.timeout / 4))
            finally:
                waiting.cancel()
            if not self._reachable.is_set():
                raise Unknown(path, f"no ZooKeeper server of {self._servers} can be reached")
        if self._over:
            raise SessionLost(path, "the session has ended")
        if not self._kazoo.connected:
            raise Unknown(path, "the connection to ZooKeeper has just been lost")

    def _deliver(self) -> None:
        self._delivery_is_due = False
        while self._finished:
            future, result = self._finished.popleft()
            if future.done():
                continue
            if result.exception is not None:
                future.set_exception(result.exception)
            elif self._over:
                # It may have been done in a session that kazoo began after ours.
                future.set_exception(ZookeeperError("the session ended meanwhile"))
            else:
                future.set_result(result.value)

    def _connected(self) -> None:
        if self._over:
            return
        again, self._was_connected = self._was_connected, True
        self._reachable.set()
        if again:
            _logger.info("Reconnected to ZooKeeper at %s", self._servers)
            self.on_connected()

    def _disconnected(self) -> None:
        if not self._over:
            self._reachable.clear()
            _logger.warning("Lost the connection to ZooKeeper at %s; reconnecting", self._servers)
        self._fail_under_way()

    def _ended(self) -> None:
        self._reachable.set()  # Whoever waits sees that it is over.
        self._fail_under_way()
        self.on_lost()

    def _fail_under_way(self) -> None:
        """What came just after kazoo had dropped its queue would wait for the next connection.

        It may still be done then, but before anything that is asked later: requests stay in order.
        """
        for future in self._under_way:
            if not future.done():
                future.set_exception(ConnectionLoss())

    # From here on: kazoo's threads and the watchdog's.

    def _note_granted_timeout(self) -> None:
        connection = self._kazoo._connection
        connect = connection._connect

        def connect_and_note(host: str, address: str, port: int) -> tuple[float, float]:
            read_timeout, connect_timeout = connect(host, address, port)
            self.timeout = read_timeout * 1.5 / 1000
            return read_timeout, connect_timeout

        connection._connect = connect_and_note  # type: ignore[method-assign, assignment]

    def _give_up_silent_servers(self, seconds: float) -> None:
        connection, handler = self._kazoo._connection, self._kazoo.handler
        invoke, create_connection = connection._invoke, handler.create_connection

        def invoke_in_time(timeout: float, *arguments: object, **named: object) -> Any:
            return invoke(min(timeout, seconds), *arguments, **named)

        def create_connection_in_time(*, timeout: float, **arguments: object) -> Any:
            return create_connection(timeout=min(timeout, seconds), **arguments)

        connection._invoke = invoke_in_time  # type: ignore[method-assign]
        handler.create_connection = create_connection_in_time  # type: ignore[method-assign]

    def _on_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self._over = True
            self._tell(self._ended)
            # Not in this thread, which kazoo waits for.
            threading.Thread(target=self._stop, name="headrace-session-end", daemon=True).start()
        elif state == KazooState.SUSPENDED:
            self._tell(self._disconnected)
        else:
            self._tell(self._connected)

    def _on_finished(self, future: asyncio.Future[Any], result: IAsyncResult) -> None:
        self._finished.append((future, result))
        if not self._delivery_is_due:
            self._delivery_is_due = True
            self._tell(self._deliver)

    def _watch_loop(self) -> None:
        while not self._stopped.wait(self.timeout / WATCHDOG_LOOKS_PER_TIMEOUT):
            silent = self._env.clock.boottime() - self._last_asked
            if silent > self.timeout:
                _logger.error("The event loop has not renewed its lease for %.1f s: closing the session", silent)
                self._stop()

    def _stop(self) -> None:
        with self._stopping:
            if self._stopped.is_set():
                return
            self._stopped.set()
            try:
                self._kazoo.stop()
                self._kazoo.close()
            except KazooException as error:
                _logger.warning("The ZooKeeper session could not be closed and will expire: %s", error)

    def _tell(self, callback: Callable[[], None]) -> None:
        # A loop that was closed without closing the store (a crashing process) has nobody left to tell.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


def _nobody() -> None:
    """Until the store has put its own in place."""

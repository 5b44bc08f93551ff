"""This broker's membership of the cluster: its session, lease and registration, renewed whenever they are lost.

    membership = Membership(env, broker_id, open_store, ...)
    await membership.open()            # the first session; `membership.store` is what the other parts hold
    start(membership.run())            # renews the lease; after a loss opens a session and registers again
    await membership.join(broker, ...) # announces the broker

Rules:
- A broker never runs beside itself. A node of its own that it finds in its place is removed if it belongs to a
  session that is known to be over: one that this process lost, or the one that its predecessor noted in the data
  directory, whose lock this process holds now. Only if that was on this machine since it booted: a copy of the
  directory on another one proves nothing. Any other is given the time of a session to vanish; after that the
  broker is refused at start, and stops if it was running.
- A broker that others take for dead is removed before its session ends (`remove_dead`). If it lives, it sees that
  its registration is gone and registers again.
- A broker that is cut off from most others removes its own registration (`withdraw`), and registers again when it
  reaches enough of them.
- An unknown result is looked at before anything else is done.
- A session that ends while the broker starts is replaced like any other, and the start continues (`patiently`).
- While there is no session, `problem` says so, and `lease` is not valid: what the broker still answers then is
  decided by whoever asks the lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from headrace.coordination.contract import SessionLost, Store, StoreError, Unknown
from headrace.coordination.lease import LeaseKeeper, LeaseState
from headrace.coordination.reconnecting import ReconnectingStore
from headrace.env import Clock, Disk, Env
from headrace.env.env import CREATE, READ_ONLY, READ_WRITE, TRUNCATE
from headrace.metadata.image import BrokerImage, MetadataImage
from headrace.metadata.registration import evict, register, remove_remains
from headrace.model.errors import KafkaError

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0
"""The longest pause between attempts to open a session again."""
WAIT_TIMEOUTS = 1.5
"""How long to wait for another session's node to vanish, in session timeouts: they end a little late."""
MAX_NOTE_BYTES = 256
PATIENT_DELAY_SECONDS = 0.2
PATIENT_ATTEMPTS = 10
"""How often a call is attempted if the store does not report its outcome; with ZooKeeper each attempt waits a
second for a server."""

T = TypeVar("T")
StoreOpener = Callable[[], Awaitable[Store]]
_logger = logging.getLogger(__name__)


class Membership:
    def __init__(
        self,
        env: Env,
        broker_id: int,
        open_store: StoreOpener,
        note_path: str,
        on_failure: Callable[[str], None],
        renewal_interval: float | None = None,
    ) -> None:
        """`note_path` is a file in the broker's own, locked data directory."""
        self._env = env
        self._broker_id = broker_id
        self._open_store = open_store
        self._note_path = note_path
        self._on_failure = on_failure
        self._renewal_interval = renewal_interval
        self._present: Store | None = None
        self._broker: BrokerImage | None = None
        self._joined = False
        self._rejoined: Callable[[], Awaitable[None]] = _nothing
        self._former_sessions: set[str] = set()
        self.is_cut_off: Callable[[], bool] = lambda: False
        """Whether this broker reaches too few others to be useful; set by the check for it (`isolation`)."""
        self.store = ReconnectingStore()
        self.lease = LeaseState(env.clock)
        self._problem: str | None = "not registered in the cluster"

    @property
    def problem(self) -> str | None:
        """Why this broker's membership is not certain at the moment; None if it is."""
        if self._problem is None and not self.lease.valid():
            return "cannot renew its lease in the coordination store: others may take its place in the cluster"
        return self._problem

    async def open(self) -> None:
        """Open the first session. Errors of the driver are raised unchanged."""
        self._present = await self._open_store()
        await self.store.attach(self._present)

    async def join(self, broker: BrokerImage, rejoined: Callable[[], Awaitable[None]]) -> BrokerImage:
        """Register; the result has the broker's epoch. `rejoined` is called after each later registration."""
        self._broker, self._rejoined = broker, rejoined
        self._former_sessions |= self._read_note()

        async def attempt() -> BrokerImage:
            assert self._present is not None
            return await self._register(self._present)

        registered = await patiently(self._env.clock, "The broker cannot be registered", attempt)
        self._joined = True
        return registered

    async def run(self) -> None:
        """Renew the lease, and replace a lost session, for as long as the broker runs."""
        assert self._present is not None
        keeper = LeaseKeeper(self._env, self._present, self.lease, self._renewal_interval)
        await keeper.run()
        while True:
            store = await self._replace(self._present)
            self._present = store
            # While it waits for its place the new session must be kept as well.
            returning = self._env.background.start("Registering again", self._return(store))
            await LeaseKeeper(self._env, store, self.lease, self._renewal_interval).run()
            returning.cancel()
            await asyncio.wait([returning])

    def follow(self, _: MetadataImage, new: MetadataImage) -> None:
        """Register again after another broker removed this one by mistake while its session was alive."""
        store = self._present
        if self._problem is not None or store is None or store.session.lost or self._broker_id in new.brokers:
            return
        self._problem = "was considered dead by another broker; registering again"
        self.lease.suspend()
        _logger.warning("Broker %d %s", self._broker_id, self._problem)
        self._env.background.start("Registering again", self._return(store, attached=True))

    async def withdraw(self, broker: BrokerImage) -> None:
        """Remove this registration, so that others lead and control, until this broker is no longer cut off."""
        store = self._present
        if self._problem is not None or store is None:
            return
        self._problem = "reaches too few of the other brokers and leaves the cluster until it does"
        self.lease.suspend()
        _logger.warning("Broker %d %s", self._broker_id, self._problem)
        while not store.session.lost:
            try:
                await evict(self.store, broker)
                break
            except StoreError as error:
                _logger.warning("Broker %d could not remove its registration yet: %s", self._broker_id, error)
            await self._env.clock.sleep(FIRST_DELAY_SECONDS)
        await self._return(store, attached=True)

    def remove_dead(self, broker: BrokerImage) -> None:
        """Remove a broker whose process has ended, without waiting for the end of its session."""
        self._env.background.start("Removing a dead broker", self._remove(broker))

    async def _remove(self, broker: BrokerImage) -> None:
        try:
            if await evict(self.store, broker):
                _logger.warning("Broker %d no longer accepts connections: removed its registration", broker.id)
        except StoreError as error:
            _logger.warning(
                "Broker %d no longer accepts connections; its session will expire: %s", broker.id, error
            )

    async def close(self) -> None:
        """End the session: the broker's nodes vanish at once."""
        self._problem = "stopping"
        await self.store.close()

    async def _replace(self, lost: Store) -> Store:
        """Close the lost session, and open another however long it takes."""
        self._problem = f"lost its session {lost.session.id} and is not part of the cluster until it has another"
        self.lease.suspend()
        _logger.error("Broker %d %s", self._broker_id, self._problem)
        self._former_sessions.add(lost.session.id)
        delay = FIRST_DELAY_SECONDS
        try:
            await lost.close()
        except (StoreError, OSError) as error:
            _logger.warning("The lost session could not be closed: %s", error)
        while True:
            try:
                return await self._open_store()
            except (StoreError, OSError) as error:
                _logger.warning("No new session yet: %s", error)
            await self._env.clock.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY_SECONDS)

    async def _return(self, store: Store, attached: bool = False) -> None:
        """Take the broker's place again, until that succeeds or this session is lost too."""
        while not store.session.lost:
            try:
                if not attached:
                    await self.store.attach(store)
                    attached = True
                if self.is_cut_off():
                    await self._env.clock.sleep(FIRST_DELAY_SECONDS)
                    continue
                if self._joined:  # else the code that starts the broker registers it
                    registered = await self._register(store)
                    await self._rejoined()
                    _logger.warning(
                        "Broker %d registered again with session %s, epoch %d",
                        *(self._broker_id, store.session.id, registered.epoch),
                    )
                self._trust(store)
                return
            except StoreError as error:
                _logger.warning("Broker %d could not register again yet: %s", self._broker_id, error)
            except KafkaError as error:
                self._on_failure(f"Broker {self._broker_id} lost its session, and then: {error.message or error}")
                return
            await self._env.clock.sleep(FIRST_DELAY_SECONDS)

    def _trust(self, store: Store) -> None:
        """Trust the lease again, as all decisions made meanwhile are known; unless the session has ended."""
        if store is self._present and not store.session.lost:
            self.lease.resume()

    async def _register(self, store: Store) -> BrokerImage:
        assert self._broker is not None
        self._write_note(store.session.id)
        await remove_remains(store, self._former_sessions)
        wait = WAIT_TIMEOUTS * store.session.timeout
        registered = await register(store, self._broker, self._env.clock, self._former_sessions, wait)
        self._problem = None
        # The store now has what it had to report, until the controller has acted on it.
        self._broker = replace(self._broker, suspect=False)
        return registered

    def _read_note(self) -> set[str]:
        disk = self._env.disk
        if not disk.exists(self._note_path):
            return set()
        fd = disk.open(self._note_path, READ_ONLY)
        try:
            session_id, _, boot_id = disk.pread(fd, MAX_NOTE_BYTES, 0).decode("ascii", "replace").partition(" ")
        finally:
            disk.close(fd)
        return {session_id} if boot_id == disk.boot_id() else set()

    def _write_note(self, session_id: str) -> None:
        """Write down the session. A missing or old note only costs the next start a wait: it is not synced."""
        try:
            _write(self._env.disk, self._note_path, f"{session_id} {self._env.disk.boot_id()}".encode())
        except OSError as error:
            _logger.warning("The session could not be saved in %s: %s", self._note_path, error)


def _write(disk: Disk, path: str, note: bytes) -> None:
    fd = disk.open(path, READ_WRITE | CREATE | TRUNCATE)
    try:
        disk.pwrite(fd, note, 0)
    finally:
        disk.close(fd)


async def patiently(clock: Clock, problem: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry while a broker starts: with the next session if one is lost, or if the store did not answer."""
    unanswered = 0
    while True:
        try:
            return await attempt()
        except SessionLost as error:
            reason: StoreError = error
        except Unknown as error:
            unanswered += 1
            if unanswered == PATIENT_ATTEMPTS:
                raise
            reason = error
        _logger.warning("%s; retrying: %s", problem, reason)
        await clock.sleep(PATIENT_DELAY_SECONDS)


async def _nothing() -> None:
    """Does nothing: until the broker has joined, nobody needs to know of a new session."""

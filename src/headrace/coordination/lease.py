"""The lease of a broker's session, as the broker itself sees it: one object to look at, one loop that renews it.

Rules:
- `LeaseState` lives as long as the broker, over any number of sessions. It is valid until the deadline of the
  present session, by a clock that also runs while the process is stopped or the machine sleeps. A process that is
  resumed after its lease ran out therefore sees that before it does anything else.
- A later session, or a registration after others took this broker for dead, gives a lease only once the broker
  knows what was decided without it (`suspend`, `resume`): it may have been replaced as a leader long ago.
- A lease that is not valid is not the same as a lost session: the store may just be out of reach. It can become
  valid again. `docs/guarantees.md` says what a broker still answers meanwhile.
- The renewal runs on the broker's loop, so that a loop that is stuck loses its session like a dead process.
"""

from __future__ import annotations

import asyncio
import logging
import math

from headrace.coordination.contract import SessionLost, Store, Unknown
from headrace.env import Env
from headrace.env.env import Clock

RENEWALS_PER_TIMEOUT = 3
RETRIES_PER_INTERVAL = 4
"""How much sooner it asks again when the store could not answer."""
NO_LEASE = -math.inf

_logger = logging.getLogger(__name__)


class LeaseState:
    """Whether this broker's session is surely alive. The hot path asks `valid()`: one comparison."""

    __slots__ = ("_granted", "_now", "_suspended", "deadline")

    def __init__(self, clock: Clock) -> None:
        self._now = clock.boottime
        self.deadline = self._granted = NO_LEASE
        self._suspended = False

    def valid(self) -> bool:
        return self._now() < self.deadline

    def renewed(self, deadline: float) -> None:
        """The session lasts until then, if it is not renewed again."""
        self._granted = deadline
        if not self._suspended:
            self.deadline = deadline

    def lost(self) -> None:
        """The session is over."""
        self.deadline = self._granted = NO_LEASE

    def suspend(self) -> None:
        """Not valid, whatever the session says, until it is resumed."""
        self._suspended = True
        self.deadline = NO_LEASE

    def resume(self) -> None:
        self._suspended = False
        self.deadline = self._granted


class LeaseKeeper:
    """Renews the session of one store and keeps the state current, until the session is lost."""

    def __init__(self, env: Env, store: Store, state: LeaseState, interval: float | None = None) -> None:
        """`interval` is in seconds; never more than a third of the session's timeout."""
        self._env = env
        self._store = store
        self._state = state
        most = store.session.timeout / RENEWALS_PER_TIMEOUT
        self._interval = most if interval is None else min(interval, most)
        self._unconfirmed_since: float | None = None
        self._wake = asyncio.Event()
        store.session.on_lost(self._on_lost)

    async def run(self) -> None:
        """Returns when the session is lost."""
        session = self._store.session
        while not session.lost:
            confirmed = await self._renew()
            if not session.lost:
                self._state.renewed(session.deadline)
                await self._pause(self._interval if confirmed else self._interval / RETRIES_PER_INTERVAL)

    async def _renew(self) -> bool:
        try:
            await self._store.renew()
        except SessionLost:
            self._state.lost()
            return False
        except Unknown as error:
            if self._unconfirmed_since is None:
                self._unconfirmed_since = self._env.clock.boottime()
                _logger.warning("Cannot renew the session's lease at the moment: %s", error)
            return False
        if self._unconfirmed_since is not None:
            missing = self._env.clock.boottime() - self._unconfirmed_since
            _logger.warning("The session's lease is renewed again, after %.1f s without renewal", missing)
            self._unconfirmed_since = None
        return True

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        if self._store.session.lost:
            return
        timer = self._env.clock.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _on_lost(self) -> None:
        self._state.lost()
        self._wake.set()

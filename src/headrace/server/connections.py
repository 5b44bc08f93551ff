"""The open connections of one listener, within their limits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.env import Clock
from headrace.server.connection_rates import AT_ONCE, ConnectionRates
from headrace.server.line_limit import LineLimit

if TYPE_CHECKING:
    from headrace.server.direct_loop import DirectSelector

log = logging.getLogger(__name__)

MANY = 256
FEW_PART = 8
"""Many have gone when only one in so many is left."""
AFTER_MANY_SECONDS = 1.0


class OpenConnection(Protocol):
    @property
    def client_host(self) -> str: ...

    def close(self) -> None: ...

    def close_if_idle(self) -> None: ...

    def hold_back(self, seconds: float) -> None:
        """Read nothing of it for so long."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    total: int
    per_address: int
    idle_seconds: float


class ConnectionSet:
    def __init__(
        self, listener: str, limits: ConnectionLimits, clock: Clock, direct: DirectSelector | None = None
    ) -> None:
        self.listener = listener
        self._lines = LineLimit(clock, log)
        self.direct = direct
        """What calls a connection that can read, if the loop has it."""
        self.limits = limits
        """May be replaced while the broker runs; connections above a new limit stay."""
        self.rates: ConnectionRates | None = None
        """How quickly connections may come, where that is limited."""
        self._clock = clock
        self.after_many: Callable[[], None] | None = None
        """Called when many were open and have gone, if what each held is worth it."""
        self._most_open = 0
        """Since many were open the last time."""
        self._open: dict[OpenConnection, None] = {}
        self._per_address: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: OpenConnection) -> bool:
        from_address = self._per_address.get(connection.client_host, 0)
        if len(self._open) >= self.limits.total or from_address >= self.limits.per_address:
            why = f"{len(self._open)} are open on {self.listener}, {from_address} of them from there"
            self._lines.say(logging.WARNING, "Refused a connection from %s", why, connection.client_host)
            return False
        turn = AT_ONCE if self.rates is None else self.rates.opened(self.listener, connection.client_host)
        if turn.refused:
            why = f"connections to {self.listener} exceed its rate"
            self._lines.say(logging.WARNING, "Refused a connection from %s", why, connection.client_host)
            if not turn.wait:
                return False
        self._open[connection] = None
        self._most_open = max(self._most_open, len(self._open))
        self._per_address[connection.client_host] = from_address + 1
        if turn.wait:
            connection.hold_back(turn.wait)
            if turn.refused:
                self._clock.call_later(turn.wait, connection.close)
        return True

    def all(self) -> list[OpenConnection]:
        return list(self._open)

    def say(self, level: int, what: str, why: str, who: str) -> None:
        """A line of the log that clients can cause without end."""
        self._lines.say(level, what, why, who)

    def forget(self, connection: OpenConnection) -> None:
        if connection not in self._open:
            return  # it was never admitted
        del self._open[connection]
        left = self._per_address[connection.client_host] - 1
        if left:
            self._per_address[connection.client_host] = left
        else:
            del self._per_address[connection.client_host]
        if self._most_open >= MANY and len(self._open) <= self._most_open // FEW_PART:
            self._most_open = 0
            if self.after_many is not None:
                self._clock.call_later(AFTER_MANY_SECONDS, self.after_many)

    def close_idle(self) -> None:
        for connection in list(self._open):
            connection.close_if_idle()

    def close_all(self) -> None:
        """What is already answered still goes out."""
        self.after_many = None
        for connection in list(self._open):
            connection.close()

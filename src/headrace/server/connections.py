"""The open connections of one listener, within their limits."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.server.connection import Connection
    from headrace.server.direct_loop import DirectSelector

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    total: int
    per_address: int
    idle_seconds: float


class ConnectionSet:
    def __init__(self, listener: str, limits: ConnectionLimits, direct: DirectSelector | None = None) -> None:
        self.listener = listener
        self.direct = direct
        """What calls a connection that can read, if the loop has it."""
        self.limits = limits
        """May be replaced while the broker runs; connections above a new limit stay."""
        self._open: dict[Connection, None] = {}
        self._per_address: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        from_address = self._per_address.get(connection.client_host, 0)
        if len(self._open) >= self.limits.total or from_address >= self.limits.per_address:
            log.warning(
                "Refused a connection from %s: %d are open on %s, %d of them from there",
                connection.client_host,
                len(self._open),
                self.listener,
                from_address,
            )
            return False
        self._open[connection] = None
        self._per_address[connection.client_host] = from_address + 1
        return True

    def forget(self, connection: Connection) -> None:
        if connection not in self._open:
            return  # it was never admitted
        del self._open[connection]
        left = self._per_address[connection.client_host] - 1
        if left:
            self._per_address[connection.client_host] = left
        else:
            del self._per_address[connection.client_host]

    def close_idle(self) -> None:
        for connection in list(self._open):
            connection.close_if_idle()

    def close_all(self) -> None:
        """What is already answered still goes out."""
        for connection in list(self._open):
            connection.close()

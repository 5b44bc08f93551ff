"""The sockets that clients connect to."""

from __future__ import annotations

import asyncio

from headrace.env import Env
from headrace.server.connection import Connection
from headrace.server.connections import ConnectionLimits, ConnectionSet
from headrace.server.dispatch import Dispatcher

BACKLOG = 1024


class Listener:
    def __init__(self, env: Env, name: str, limits: ConnectionLimits) -> None:
        self._env = env
        self.name = name
        self._limits = limits
        self.connections = ConnectionSet(name, limits)
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self, dispatcher: Dispatcher, host: str | None, port: int) -> None:
        """Listen on an address; port 0 takes a free one, which is then in `port`."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(dispatcher, self.connections), host, port, backlog=BACKLOG, start_serving=False
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def serve(self) -> None:
        assert self._server is not None
        await self._server.start_serving()

    async def sweep_idle(self) -> None:
        """Twice per idle time: a connection is closed after one to one and a half of it."""
        while True:
            await self._env.clock.sleep(self._limits.idle_seconds / 2)
            self.connections.close_idle()

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

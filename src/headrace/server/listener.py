"""The sockets that clients connect to."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

from headrace.env import Env
from headrace.server.connections import ConnectionLimits, ConnectionSet
from headrace.server.direct_loop import DirectLoop
from headrace.server.dispatch import Dispatcher
from headrace.server.socket_link import SocketLink

LEFT_TO_THE_KERNEL = -1


@dataclass(frozen=True, slots=True)
class SocketOptions:
    backlog: int
    send_buffer_bytes: int
    receive_buffer_bytes: int

    def apply(self, listening: socket.socket) -> None:
        """Accepted connections inherit both."""
        for option, size in (
            (socket.SO_SNDBUF, self.send_buffer_bytes),
            (socket.SO_RCVBUF, self.receive_buffer_bytes),
        ):
            if size != LEFT_TO_THE_KERNEL:
                listening.setsockopt(socket.SOL_SOCKET, option, size)


class Listener:
    def __init__(self, env: Env, name: str, limits: ConnectionLimits, options: SocketOptions) -> None:
        self._env = env
        self._options = options
        self.name = name
        self._limits = limits
        self.connections = ConnectionSet(name, limits, env.clock)
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self, dispatcher: Dispatcher, host: str | None, port: int) -> None:
        """Listen on an address; port 0 takes a free one, which is then in `port`."""
        loop = asyncio.get_running_loop()
        self.connections.direct = loop.direct if isinstance(loop, DirectLoop) else None
        self._server = await loop.create_server(
            lambda: SocketLink(dispatcher, self.connections),
            host,
            port,
            backlog=self._options.backlog,
            start_serving=False,
        )
        for listening in self._server.sockets:
            self._options.apply(listening)
        self.port = self._server.sockets[0].getsockname()[1]

    async def serve(self) -> None:
        assert self._server is not None
        await self._server.start_serving()

    async def sweep_idle(self) -> None:
        """Twice per idle time: a connection goes after one to one and a half of it; a negative one never."""
        while self._limits.idle_seconds > 0:
            await self._env.clock.sleep(self._limits.idle_seconds / 2)
            self.connections.close_idle()

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

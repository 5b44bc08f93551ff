"""A socket that clients connect to with TLS. Handshakes are bounded in time and number.

A peer that begins a handshake and does not finish it holds a connection. So when many do, the oldest one makes
way: who means it is done in milliseconds.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

from headrace.env import Env
from headrace.server.connections import ConnectionLimits
from headrace.server.direct_loop import DirectLoop
from headrace.server.dispatch import Dispatcher
from headrace.server.listener import Listener, SocketOptions
from headrace.server.tls.identity import TlsIdentity
from headrace.server.tls.link import TlsLink

ACCEPT_AT_ONCE = 16
"""What is more comes with the next turn."""
MAX_HANDSHAKES = 1024
HANDSHAKES_PART = 2
"""At most one in so many of the allowed connections is in its handshake."""
RETRY_SECONDS = 1.0
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class TlsListener(Listener):
    def __init__(
        self, env: Env, name: str, limits: ConnectionLimits, options: SocketOptions, identity: TlsIdentity
    ) -> None:
        super().__init__(env, name, limits, options)
        self._identity = identity
        identity.trust_changed = self._trust_changed
        self._listening: list[socket.socket] = []
        self._dispatcher: Dispatcher | None = None
        self._shaking: dict[TlsLink, None] = {}
        self.handshake_seconds = 30.0

    async def open(self, dispatcher: Dispatcher, host: str | None, port: int) -> None:
        await self._env.run_blocking(self._identity.load)
        loop = asyncio.get_running_loop()
        self.connections.direct = loop.direct if isinstance(loop, DirectLoop) else None
        self._dispatcher = dispatcher
        # OpenSSL holds some 45 KB for a connection, in pieces that the C library would keep.
        self.connections.after_many = lambda: dispatcher.give_back_memory()
        # Asyncio finds the addresses and binds; accepting is ours, since a transport would own the socket.
        self._server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        for bound in self._server.sockets:
            self._options.apply(bound)
            own = bound.dup()
            own.setblocking(False)
            self._listening.append(own)
        self.port = self._server.sockets[0].getsockname()[1]

    async def serve(self) -> None:
        for listening in self._listening:
            listening.listen(self._options.backlog)
            self._watch(listening)

    def _watch(self, listening: socket.socket) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                tcp, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self.connections.say(logging.ERROR, "Cannot accept connections on %s", str(error), self.name)
                asyncio.get_running_loop().remove_reader(listening.fileno())
                self._env.clock.call_later(RETRY_SECONDS, lambda: self._watch(listening))
                return
            self._begin(tcp, str(peer[0]))

    def _begin(self, tcp: socket.socket, host: str) -> None:
        assert self._dispatcher is not None
        most = max(1, min(MAX_HANDSHAKES, self.connections.limits.total // HANDSHAKES_PART))
        if len(self._shaking) >= most:
            oldest = next(iter(self._shaking))
            oldest.give_up_handshake(f"{most} others are in their TLS handshakes too, and this is the oldest")
        link = TlsLink(self._dispatcher, self.connections, self, self._identity.contexts)
        if link.begin(tcp, host, self.handshake_seconds):
            self._shaking[link] = None

    def ended(self, link: TlsLink) -> None:
        """Its handshake has, well or not."""
        self._shaking.pop(link, None)

    def _trust_changed(self) -> None:
        """Who was let in by a certificate must show it again."""
        for connection in self.connections.all():
            if isinstance(connection, TlsLink) and connection.named_by_certificate:
                connection.close()

    def stop_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening.fileno())
            listening.close()
        self._listening.clear()
        super().stop_accepting()

"""A TCP proxy that cuts connections at random: the network at its worst, without special rights.

It passes bytes both ways and, while `cutting`, resets a connection after a random number of bytes, in the middle
of a request or of an answer. Seeded, so a failure can be looked at again.

A client learns the broker's own address from Metadata, so the broker must be started with `advertised.listeners`
naming the proxy; a proxy is therefore made first and pointed at its target after.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024
POLL_S = 0.02
CONNECT_TIMEOUT_S = 2.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Forwards every connection to `target` and cuts it after `min_bytes`..`max_bytes` bytes."""

    def __init__(self, seed: int, min_bytes: int = 1_500, max_bytes: int = 15_000) -> None:
        self.cutting = True
        self.cuts = 0
        self._target: tuple[str, int] | None = None
        self._random = random.Random(seed)
        self.limits = (min_bytes, max_bytes)
        self._stopping = False
        self._lock = threading.Lock()
        self._listener = socket.create_server((HOST, 0))
        self._listener.settimeout(POLL_S)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def address(self) -> str:
        return f"{HOST}:{self._listener.getsockname()[1]}"

    def point_at(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._target = (host, int(port))

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        for thread in list(self._threads):
            thread.join(timeout=5)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopping:
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self._target is None:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=CONNECT_TIMEOUT_S)
            except OSError:
                client.close()
                continue
            link = _Link(client, server, self._random.randint(*self.limits))
            for source, sink in ((client, server), (server, client)):
                thread = threading.Thread(target=self._pump, args=(link, source, sink), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(self, link: _Link, source: socket.socket, sink: socket.socket) -> None:
        while not self._stopping and not link.cut:
            try:
                if not select.select([source], [], [], POLL_S)[0]:
                    continue
                data = source.recv(CHUNK_BYTES)
                if not data:
                    break
                if self.cutting and link.spend(len(data)) <= 0:
                    # A part of the chunk still goes through, so that the cut falls inside a request or an answer.
                    self._pass_on(link, sink, data[: len(data) // 2])
                    with self._lock:
                        self.cuts += 1
                    break
                self._pass_on(link, sink, data)
            except OSError:
                break
        link.leave()

    def _pass_on(self, link: _Link, sink: socket.socket, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._stopping and not link.cut:
            if select.select([], [sink], [], POLL_S)[1]:
                view = view[sink.send(view, socket.MSG_DONTWAIT) :]


class _Link:
    """The two sockets of one proxied connection, and the bytes it may still pass before it is cut.

    Each socket is used by two threads, so only the last one to leave closes them: a descriptor that is closed
    under another thread may be somebody else's by the time it is used.
    """

    def __init__(self, client: socket.socket, server: socket.socket, budget: int) -> None:
        self._sockets = (client, server)
        self._budget = budget
        self._users = 2
        self._lock = threading.Lock()
        self.cut = False

    def spend(self, size: int) -> int:
        with self._lock:
            self._budget -= size
            return self._budget

    def leave(self) -> None:
        """Called by each direction at its end; the connection is over for both."""
        self.cut = True
        with self._lock:
            self._users -= 1
            if self._users:
                return
        for side in self._sockets:
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            side.close()

"""A broker whose event loop is turned by hand, one turn at a time, in the thread that is also its client.

Over loopback a request is in the broker's socket when `send` returns, so one turn of the loop handles it and
what it did can be counted exactly: there is no scheduling, no clock and no second thread in the way. Only the
turns are counted, never the client's part.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.requests import fetch, fetch_error
from headrace.config.broker_config import BrokerConfig
from headrace.env.real import real_env
from headrace.node import Node
from headrace.server.direct_loop import new_loop
from headrace.server.dispatch import Dispatcher
from headrace.server.turns import SLICE_SECONDS
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

HOST = "127.0.0.1"
CREATE_TOPICS_VERSION = 7
TRAILING_TURNS = 2
"""Turns after the last answer, so that what a request left for later counts too."""
PATIENCE_S = 120.0
RECEIVE_SIZE = 1 << 20
ENDLESS_S = 3600.0
MAX_TURNS = 100_000

Turn = Callable[[Callable[[], None]], None]
"""Runs one turn of the loop, given as an argument, and counts what it does."""


class HandDrivenBroker:
    def __init__(
        self, directory: Path, divided: bool = False, more_settings: Mapping[str, str] | None = None
    ) -> None:
        """`divided`: whether long work is done in slices, as a broker does."""
        settings = {"listeners": f"PLAINTEXT://{HOST}:0", "log.dirs": str(directory), **(more_settings or {})}
        config = BrokerConfig.build({}, {}, settings, lambda: HOST)
        # While its bytecodes are counted, everything takes a hundred times as long: no request may look endless.
        Dispatcher.slice_seconds = SLICE_SECONDS if divided else ENDLESS_S
        self._loop = new_loop()
        self._node = Node(real_env(), config)
        addresses = self._loop.run_until_complete(self._node.start())
        self._port = int(addresses.rpartition(":")[2])
        self._clients: list[Client] = []

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._loop.run_until_complete(self._node.stop())
        self._loop.close()

    def turn(self) -> None:
        """One turn: what is ready is done, nothing is waited for."""
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()

    def connect(self) -> Client:
        client = Client(socket.create_connection((HOST, self._port)))
        self._clients.append(client)
        for _ in range(5):
            self.turn()
        return client

    def create_topic(self, name: str) -> None:
        """Creates a topic of one partition and waits until it is served."""
        client = self.connect()
        message = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
        body = (
            struct.pack(">hhih", 19, CREATE_TOPICS_VERSION, 0, -1) + b"\0" + message.encode(CREATE_TOPICS_VERSION)
        )
        self.answer(client, struct.pack(">i", len(body)) + body)
        deadline = time.monotonic() + PATIENCE_S
        while fetch_error(self.answer(client, fetch(name, 0, 0, 1, max_wait_ms=0).frame)):
            assert time.monotonic() < deadline, f"{name} is not served"

    def answer(self, client: Client, frame: bytes) -> bytes:
        """For cold requests, which need threads and so time."""
        client.send(frame)
        deadline = time.monotonic() + PATIENCE_S
        while not client.receive():
            assert time.monotonic() < deadline, "no answer"
            time.sleep(0.001)
            self.turn()
        return client.answers.pop()

    def exchange(self, sends: Mapping[Client, bytes], wanted: Mapping[Client, int], turn: Turn) -> None:
        """Sends, and turns the loop through `turn` until the clients of `wanted` have so many answers each."""
        for client, frames in sends.items():
            client.send(frames)
        for _ in range(MAX_TURNS):
            turn(self.turn)
            for client in sends:
                client.send(b"")
            if all(client.receive() >= count for client, count in wanted.items()):
                break
        else:
            raise AssertionError(f"no answer after {MAX_TURNS} turns")
        for client in wanted:
            client.answers.clear()
        self.idle(turn, TRAILING_TURNS)

    def idle(self, turn: Turn, count: int) -> None:
        """Turns with nothing to do, or with what earlier ones left."""
        for _ in range(count):
            turn(self.turn)


class Client:
    """One connection, never waiting."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self.answers: list[bytes] = []
        self.closed = False
        """Whether the broker hung up."""

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Sends what fits, of `data` and of what did not fit before."""
        pending = bytes(self._unsent) + data if data and self._unsent else data or self._unsent
        if not pending:
            return
        try:
            sent = self._socket.send(pending)
        except BlockingIOError:
            sent = 0
        except ConnectionError:
            self.closed, sent = True, len(pending)
        self._unsent = memoryview(pending)[sent:]

    def receive(self) -> int:
        """Takes in what is there; the number of whole answers."""
        try:
            received = self._socket.recv(RECEIVE_SIZE)
            self.closed = not received
            self._received += received
        except BlockingIOError:
            pass
        except ConnectionError:
            self.closed = True
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                break
            self.answers.append(bytes(self._received[4:end]))
            del self._received[:end]
        return len(self.answers)

"""A whole broker inside the test's own loop, with a disk that reports what would block that loop."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from headrace.config.broker_config import BrokerConfig
from headrace.env import Env
from headrace.env.real import RealDisk, real_env
from headrace.node import Node
from headrace.wire.api_keys import ApiKey
from headrace.wire.schema import Request, Response

Rs = TypeVar("Rs", bound=Response)

SLOW_CALLS = ("fsync", "fdatasync", "fsync_directory", "unlink", "remove_tree")


class LoopGuardDisk(RealDisk):
    """The real disk, which notes from which thread the calls come that may wait for the device."""

    def __init__(self) -> None:
        self._loop_thread = threading.get_ident()
        self.on_loop_calls: list[str] = []
        self.off_loop_calls: list[str] = []
        for name in SLOW_CALLS:
            setattr(self, name, self._guarded(name, getattr(self, name)))

    def _guarded(self, name: str, call: Any) -> Any:
        def guarded(*arguments: Any) -> Any:
            if threading.get_ident() == self._loop_thread:
                self.on_loop_calls.append(f"{name}{arguments}")
            else:
                self.off_loop_calls.append(name)
            return call(*arguments)

        return guarded


class Client:
    """One connection that sends one request at a time, through the schema classes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation = 0

    async def ask(self, request: Request, response: type[Rs], version: int) -> Rs:
        self.send(request, version)
        return await self.answer(response, version)

    def send(self, request: Request, version: int) -> None:
        self._correlation += 1
        flexible = version >= request.flexible_since
        head = struct.pack(">hhih", request.api_key, version, self._correlation, 4) + b"test" + b"\0" * flexible
        body = head + request.encode(version)
        self._writer.write(struct.pack(">i", len(body)) + body)

    async def answer(self, response: type[Rs], version: int) -> Rs:
        (size,) = struct.unpack(">i", await asyncio.wait_for(self._reader.readexactly(4), 10))
        frame = await asyncio.wait_for(self._reader.readexactly(size), 10)
        flexible = version >= response.flexible_since and response.api_key != ApiKey.API_VERSIONS
        return response.decode(frame, version, 5 if flexible else 4)


def env_with(disk: RealDisk) -> Env:
    return replace(real_env(), disk=disk)


@asynccontextmanager
async def running_node(data: Path, disk: RealDisk | None = None, **settings: str) -> AsyncIterator[str]:
    """Its address. Settings have underscores for dots."""
    flags = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.build(flags={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data), **flags})
    node = Node(env_with(disk or RealDisk()), config)
    try:
        yield await node.start()
    finally:
        await node.stop()


async def connect(address: str, receive_bytes: int | None = None) -> Client:
    """`receive_bytes`: take no more than that from the broker before an answer is asked for, or somewhat more."""
    host, _, port = address.rpartition(":")
    if receive_bytes is None:
        return Client(*await asyncio.open_connection(host, int(port)))
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    narrow.setblocking(False)
    await asyncio.get_running_loop().sock_connect(narrow, (host, int(port)))
    return Client(*await asyncio.open_connection(sock=narrow, limit=receive_bytes))

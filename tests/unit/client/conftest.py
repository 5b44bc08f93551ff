"""Servers that answer with bytes of the test's choice."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

import pytest

from headrace.client.address import Address
from headrace.wire.header import parse_request_header, response_header
from headrace.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.schema import Response

Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[[Conversation], Awaitable[Address]]
Answer = Callable[[int, int, bytes], Response | Literal["silence"] | None]
"""(API key, version, body) -> what to answer; None closes the connection."""


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[asyncio.Server] = []

    async def start(conversation: Conversation) -> Address:
        async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await conversation(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(guarded, "127.0.0.1", 0)
        servers.append(server)
        return Address("127.0.0.1", server.sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()


def broker(answer: Answer, versions: dict[int, tuple[int, int]]) -> Conversation:
    """Speaks the protocol's framing; says what it has, and leaves the rest to `answer`."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(size)
            header = parse_request_header(frame)
            response: Response | Literal["silence"] | None
            if header.api_key == 18:
                keys = [
                    ApiVersion(api_key=key, min_version=low, max_version=high)
                    for key, (low, high) in {18: (0, 4), **versions}.items()
                ]
                response = ApiVersionsResponse(api_keys=keys)
            else:
                response = answer(header.api_key, header.api_version, frame[header.body :])
            if response is None:
                return
            if response == "silence":
                await asyncio.sleep(0.02)  # slow to read on: what is sent piles up at the sender
                continue
            body = response_header(header.api_key, header.api_version, header.correlation_id)
            body += response.encode(header.api_version)
            writer.write(struct.pack(">i", len(body)) + body)

    return converse

"""The admin port: /metrics, /healthz, /readyz and JSON views, over plain HTTP GET, usually on loopback.

A handful of read-only pages does not need a web framework in the broker; the console, which does, is a process
of its own (architecture D11). A request is one line and some headers, bounded in size and time, and the
connection closes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

MAX_REQUEST_BYTES = 16 * 1024
REQUEST_TIMEOUT_SECONDS = 5.0
MAX_CONNECTIONS = 100
"""At a time. Further connections are closed, so that a flood of this port takes no descriptors from clients."""
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    body: str
    content_type: str = TEXT
    status: int = 200


_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}

PageMaker = Callable[[], Page | Awaitable[Page]]
AdminCheck = Callable[[str, str], Awaitable[bool]]
"""Whether who sends this Authorization header, from this host, may look."""
OPEN_PAGES = frozenset(("/healthz", "/readyz"))
"""For whatever restarts brokers and spreads load."""


def json_page(value: object) -> Page:
    return Page(json.dumps(value, indent=1) + "\n", JSON)


class AdminServer:
    def __init__(self, pages: Mapping[str, PageMaker], login: AdminCheck | None = None) -> None:
        """`login` is asked for every page but those that say no more than whether the broker lives."""
        self._pages = dict(pages)
        self._login = login
        self._server: asyncio.Server | None = None
        self._connections = 0
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections += 1
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                peer = writer.get_extra_info("peername")
                page = await self._page(head, peer[0] if peer else "")
                writer.write(_response(page, with_body=not head.startswith(b"HEAD ")))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # whoever it was does not speak HTTP, or left
        finally:
            self._connections -= 1
            writer.close()

    async def _page(self, head: bytes, host: str) -> Page:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3:
            return Page("not an HTTP request\n", status=400)
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return Page("only GET is served here\n", status=405)
        path = target.split("?", 1)[0]
        asks = self._login if path not in OPEN_PAGES else None
        if asks is not None and not await asks(_authorization(head), host):
            return Page("a login is required\n", status=401)
        maker = self._pages.get(path)
        if maker is None:
            return Page("there are: " + " ".join(sorted(self._pages)) + "\n", status=404)
        page = maker()
        return page if isinstance(page, Page) else await page


def _authorization(head: bytes) -> str:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"authorization":
            return value.strip().decode("latin-1")
    return ""


def _response(page: Page, with_body: bool) -> bytes:
    body = page.body.encode()
    asking = 'WWW-Authenticate: Basic realm="headrace"\r\n' if page.status == 401 else ""
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\n{asking}"
        f"Content-Type: {page.content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")

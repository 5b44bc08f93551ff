"""The admin port: /metrics, /healthz, /readyz and JSON views, over plain HTTP GET on loopback.

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
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    body: str
    content_type: str = TEXT
    status: int = 200


_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

PageMaker = Callable[[], Page | Awaitable[Page]]


def json_page(value: object) -> Page:
    return Page(json.dumps(value, indent=1) + "\n", JSON)


class AdminServer:
    def __init__(self, pages: Mapping[str, PageMaker]) -> None:
        self._pages = dict(pages)
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(await self._page(head), with_body=not head.startswith(b"HEAD ")))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # whoever it was does not speak HTTP, or left
        finally:
            writer.close()

    async def _page(self, head: bytes) -> Page:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3:
            return Page("not an HTTP request\n", status=400)
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return Page("only GET is served here\n", status=405)
        maker = self._pages.get(target.split("?", 1)[0])
        if maker is None:
            return Page("there are: " + " ".join(sorted(self._pages)) + "\n", status=404)
        page = maker()
        return page if isinstance(page, Page) else await page


def _response(page: Page, with_body: bool) -> bytes:
    body = page.body.encode()
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\n"
        f"Content-Type: {page.content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")

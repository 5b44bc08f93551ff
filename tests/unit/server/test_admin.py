"""R-OPS-3: the admin port of a running broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.node import StartError
from headrace.server.admin import AdminServer, Page, json_page
from headrace.testing.in_process import running_node


async def get(port: int, request: bytes) -> tuple[str, str]:
    """The status line and the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = (await asyncio.wait_for(reader.read(), 5)).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return head.split("\r\n")[0], body


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /page HTTP/1.1", "HTTP/1.1 200 OK", "hello\n"),
        (b"GET /page?x=1 HTTP/1.1", "HTTP/1.1 200 OK", "hello\n"),
        (b"HEAD /page HTTP/1.1", "HTTP/1.1 200 OK", ""),
        (b"GET /json HTTP/1.1", "HTTP/1.1 200 OK", '{\n "a": 1\n}\n'),
        (b"GET /down HTTP/1.1", "HTTP/1.1 503 Service Unavailable", "no\n"),
        (b"GET /other HTTP/1.1", "HTTP/1.1 404 Not Found", "there are: /down /json /page\n"),
        (b"POST /page HTTP/1.1", "HTTP/1.1 405 Method Not Allowed", "only GET is served here\n"),
        (b"nonsense", "HTTP/1.1 400 Bad Request", "not an HTTP request\n"),
    ],
)
async def test_pages(request_line: bytes, status: str, body: str) -> None:
    server = AdminServer(
        {
            "/page": lambda: Page("hello\n"),
            "/json": lambda: json_page({"a": 1}),
            "/down": lambda: Page("no\n", status=503),
        }
    )
    await server.open("127.0.0.1", 0)
    try:
        assert await get(server.port, request_line + b"\r\nHost: x\r\n\r\n") == (status, body)
    finally:
        server.close()


async def test_what_is_not_http_is_hung_up_on() -> None:
    server = AdminServer({})
    await server.open("127.0.0.1", 0)
    try:
        assert await get(server.port, b"x" * 100_000) == ("", "")
    finally:
        server.close()


async def test_a_broker_shows_metrics_and_health(tmp_path: Path, unused_tcp_port: int) -> None:
    async with running_node(tmp_path, headrace_admin_port=str(unused_tcp_port)):
        assert (await get(unused_tcp_port, b"GET /healthz HTTP/1.1\r\n\r\n"))[1] == "ok\n"
        assert (await get(unused_tcp_port, b"GET /readyz HTTP/1.1\r\n\r\n"))[1] == "ready\n"
        metrics = (await get(unused_tcp_port, b"GET /metrics HTTP/1.1\r\n\r\n"))[1]
        assert "kafka_brokers 1\n" in metrics
        assert 'headrace_requests_total{api="Produce"} 0\n' in metrics
        with pytest.raises(StartError, match="Cannot serve metrics on"):
            async with running_node(tmp_path / "other", headrace_admin_port=str(unused_tcp_port)):
                pass

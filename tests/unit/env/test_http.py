"""Redirects of the servers that issue tokens and keys."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headrace.env.http import fetch, may_redirect


@contextmanager
def serving(location: str | None) -> Iterator[tuple[str, list[Any]]]:
    """A server whose /moved redirects to there, or to itself, and what it was asked for."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            moved = self.path == "/moved"
            self.send_response(302 if moved else 200)
            if moved:
                self.send_header("Location", location or "/here")
            self.end_headers()
            self.wfile.write(b"" if moved else b"found")

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *values: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


SECRET = {"Authorization": "Basic aWQ6c2VjcmV0"}


def test_a_redirect_within_the_server_is_followed() -> None:
    with serving(None) as (url, asked):
        assert fetch(f"{url}/moved", 60, 100) == b"found"
        assert [path for path, _ in asked] == ["/moved", "/here"]


@pytest.mark.parametrize("form", [None, b"grant_type=client_credentials"])
def test_a_password_is_not_sent_to_another_server(form: bytes | None) -> None:
    with serving(None) as (other, seen), serving(f"{other}/here") as (url, asked):
        with pytest.raises(OSError, match="not followed"):
            fetch(f"{url}/moved", 60, 100, form=form, headers=SECRET)
        assert asked == [("/moved", SECRET["Authorization"])]
        assert seen == []


@pytest.mark.parametrize(
    ("url", "new_url", "secret", "allowed"),
    [
        ("https://a/keys", "https://a/v2", True, True),
        ("https://a/keys", "https://b/keys", False, True),
        ("https://a/keys", "https://b/keys", True, False),
        ("https://a/keys", "https://a:444/keys", True, False),
        ("https://a/keys", "http://a/keys", False, False),
        ("http://a/keys", "https://a/keys", False, True),
        ("http://a/keys", "http://b/keys", False, False),
        ("https://a/keys", "ftp://a/keys", False, False),
        ("https://a/keys", "file:///etc/passwd", False, False),
    ],
)
def test_where_a_redirect_may_lead(url: str, new_url: str, secret: bool, allowed: bool) -> None:
    assert may_redirect(url, new_url, secret=secret) is allowed

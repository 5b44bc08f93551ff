"""What another server says over HTTP, or a file: URL holds: bounded in time and size. It blocks."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.request
from collections.abc import Mapping

CHUNK_BYTES = 64 * 1024


def fetch(
    url: str,
    seconds: float,
    max_bytes: int,
    *,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """With a form it is a POST. What goes wrong is an `OSError`, or a `ValueError` if there is too much of it."""
    deadline = time.monotonic() + seconds
    request = urllib.request.Request(url, form, dict(headers or {}))
    parts: list[bytes] = []
    size = 0
    try:
        with urllib.request.urlopen(request, timeout=seconds, context=tls) as response:
            while chunk := response.read1(CHUNK_BYTES):
                parts.append(chunk)
                size += len(chunk)
                if size > max_bytes:
                    raise ValueError(f"it has more than {max_bytes} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it took longer than {seconds:g} s")
    except http.client.HTTPException as error:
        raise ConnectionError(f"it does not speak valid HTTP: {error!r}") from None
    return b"".join(parts)

"""What another server says over HTTP, or a file: URL holds: bounded in time and size. It blocks.

A redirect is followed within the same server. To another one it must be by https, and nothing secret was sent.
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.request
from collections.abc import Mapping
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit

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
    """With a form it is a POST. Raises `OSError` for any failure, or `ValueError` if the content is too large."""
    deadline = time.monotonic() + seconds
    request = urllib.request.Request(url, form, dict(headers or {}))
    parts: list[bytes] = []
    size = 0
    try:
        opener = urllib.request.build_opener(_Redirects(), urllib.request.HTTPSHandler(context=tls))
        with opener.open(request, timeout=seconds) as response:
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


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Python's own would send passwords along to any server, and leave https."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not may_redirect(req.full_url, newurl, secret=req.data is not None or req.has_header("Authorization")):
            raise HTTPError(req.full_url, code, f"it redirects to {newurl}, which is not followed", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def may_redirect(url: str, new_url: str, *, secret: bool) -> bool:
    """`secret`: whether there is something in the request that only this server may have."""
    old, new = urlsplit(url), urlsplit(new_url)
    same = (old.scheme, old.netloc) == (new.scheme, new.netloc)
    return same or (new.scheme == "https" and not secret)

"""Keys of tokens from a real HTTP server: exchanged, late, slow, broken. Nothing of it stops the loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import headrace.services.token_keys as module
from headrace.config.oauth_settings import OAuthSettings, issuer_tls
from headrace.env.certificates import make_authority, make_certificate
from headrace.env.real import real_env
from headrace.security.tokens import UnknownKey
from headrace.services.token_keys import TokenKeys
from headrace.testing.process import free_port
from tests.compat.issuer import AUDIENCE, ISSUER, Issuer, IssuerServer

TIMEOUT_S = 60.0


def settings(url: str, refresh_s: float = 0.02) -> OAuthSettings:
    return OAuthSettings(
        url, ISSUER, (AUDIENCE,), refresh_seconds=refresh_s, backoff_seconds=0.01, backoff_max_seconds=0.02
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


def believes(keys: TokenKeys, token: str) -> bool:
    try:
        return keys.check(token).subject == "alice"
    except UnknownKey:
        return False


async def test_keys_are_exchanged(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    with closing(IssuerServer(issuer)) as server:
        keys = TokenKeys(real_env(), settings(server.url("keys")))
        await keys.open()
        old = issuer.token()
        assert believes(keys, old)
        issuer.exchange_keys("second")
        running = asyncio.ensure_future(keys.run())
        await until(lambda: believes(keys, issuer.token()))
        assert not believes(keys, old)
        running.cancel()


async def test_an_unknown_key_is_asked_for_but_not_by_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASKED_AGAIN_SECONDS", 3600.0)
    issuer = Issuer(tmp_path)
    with closing(IssuerServer(issuer)) as server:
        keys = TokenKeys(real_env(), settings(server.url("keys")))
        await keys.open()
        issuer.exchange_keys("second")
        for _ in range(100):  # too soon
            with pytest.raises(UnknownKey):
                await keys.refresh(UnknownKey("new"))
        assert server.requests == ["/keys"]
        monkeypatch.setattr(module, "ASKED_AGAIN_SECONDS", 0.0)
        await keys.refresh(UnknownKey("new"))
        assert believes(keys, issuer.token())


async def test_a_server_that_comes_later_and_goes_again(tmp_path: Path) -> None:
    issuer, port = Issuer(tmp_path), free_port()
    keys = TokenKeys(real_env(), settings(f"http://127.0.0.1:{port}/keys"))
    await keys.open()  # no reason not to start
    assert not believes(keys, issuer.token())
    running = asyncio.ensure_future(keys.run())
    with closing(IssuerServer(issuer, port=port)):
        await until(lambda: believes(keys, issuer.token()))
    with pytest.raises(UnknownKey):
        await keys.refresh(UnknownKey("new"))
    assert believes(keys, issuer.token()), "what was read before holds"
    assert not running.done()
    running.cancel()


async def test_a_server_that_hangs_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASKED_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(module, "FETCH_SECONDS", TIMEOUT_S)
    issuer = Issuer(tmp_path)
    with closing(IssuerServer(issuer)) as server:
        keys = TokenKeys(real_env(), settings(server.url("keys"), 3600.0))
        await keys.open()
        server.go.clear()
        hanging = asyncio.ensure_future(keys.refresh(UnknownKey("new")))
        await until(lambda: len(server.requests) == 2)
        for _ in range(50):
            assert believes(keys, issuer.token())
            with pytest.raises(UnknownKey):  # at once
                await keys.refresh(UnknownKey("new"))
        assert len(server.requests) == 2
        assert not hanging.done()
        server.go.set()
        await hanging


@contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """A server that says the same to everybody; its URL."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/keys"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 500 Oops\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (module.MAX_BYTES + 1),
        b'HTTP/1.1 200 OK\r\n\r\n{"keys": [{"kty": "RSA", "n": 5, "e": []}, {"kty": "EC", "crv": "P-256"}]}',
        b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
    ],
)
async def test_answers_that_are_no_keys(answer: bytes) -> None:
    with saying(answer) as url:
        keys = TokenKeys(real_env(), settings(url))
        await keys.open()
        assert len(keys._keys) == 0
        running = asyncio.ensure_future(keys.run())
        await asyncio.sleep(0.05)
        assert not running.done(), running.exception()
        running.cancel()


async def test_over_https_with_an_authority_of_its_own(tmp_path: Path) -> None:
    authority = make_authority("issuer")
    (tmp_path / "ca.pem").write_text(authority.pem)
    (tmp_path / "server.pem").write_text(make_certificate(authority, "issuer", ("127.0.0.1",)).store)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    issuer = Issuer(tmp_path)
    with closing(IssuerServer(issuer, context)) as server:
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
        keys = TokenKeys(real_env(), OAuthSettings(server.url("keys"), tls=issuer_tls(trusted)))
        await keys.open()
        assert believes(keys, issuer.token())
        others = TokenKeys(real_env(), OAuthSettings(server.url("keys")))
        await others.open()
        assert not believes(others, issuer.token())

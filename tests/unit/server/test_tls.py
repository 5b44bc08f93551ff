"""A TLS listener among peers that do not mean well, and one whose certificates are exchanged while it serves."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import headrace.server.connections as connections_module
from headrace.config.listeners import ConfiguredListener
from headrace.config.principal_rules import PrincipalRules
from headrace.config.tls_config import ListenerTls
from headrace.env.certificates import Certificate, make_authority, make_certificate, revocations
from headrace.env.real import real_env
from headrace.env.tls import client_context, server_context
from headrace.model.tls import JKS, PEM, PKCS12, REQUIRED, KeyStore, TlsFault, TlsMaterial, TrustStore
from headrace.server.connections import ConnectionLimits
from headrace.server.listener import SocketOptions
from headrace.server.tls.identity import TlsIdentity
from headrace.server.tls.listener import TlsListener
from tests.unit.server.test_connection import Client, EchoDispatcher

LIMITS = ConnectionLimits(total=100, per_address=100, idle_seconds=600)
AUTHORITY = make_authority("test")
BROKER = make_certificate(AUTHORITY, "broker", ("127.0.0.1",))
ALICE = make_certificate(AUTHORITY, "CN=alice,O=Acme")
TRUSTED = TrustStore(certificates=AUTHORITY.pem)
TIMEOUT_S = 60.0


def own(certificate: Certificate) -> KeyStore:
    return KeyStore(chain=certificate.pem, key=certificate.key)


class Served:
    def __init__(self, listener: TlsListener, dispatcher: EchoDispatcher, identity: TlsIdentity) -> None:
        self.listener = listener
        self.dispatcher = dispatcher
        self.identity = identity

    async def client(self, shown: Certificate | None = None) -> Client:
        material = TlsMaterial(own(shown) if shown is not None else None, TRUSTED)
        opened = asyncio.open_connection("127.0.0.1", self.listener.port, ssl=client_context(material))
        return Client(*await asyncio.wait_for(opened, TIMEOUT_S))

    async def raw(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.listener.port))

    async def echoes(self, shown: Certificate | None = None) -> None:
        """A well-behaved client sees nothing of the others."""
        client = await self.client(shown)
        client.send(b"echo")
        assert await client.receive() == b"echo"
        client.writer.close()

    async def until_empty(self) -> None:
        await until(lambda: len(self.listener.connections) == 0)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def served(
    material: TlsMaterial | None = None, limits: ConnectionLimits = LIMITS, rules: str = "DEFAULT"
) -> AsyncIterator[Served]:
    dispatcher = EchoDispatcher()
    settings = ListenerTls(
        material or TlsMaterial(own(BROKER), TRUSTED), PrincipalRules.parse(rules), names_principals=True
    )
    identity = TlsIdentity(ConfiguredListener("SSL", "127.0.0.1", 0, "SSL"), settings)
    listener = TlsListener(real_env(), "SSL", limits, SocketOptions(50, -1, -1), identity)
    await listener.open(cast(Any, dispatcher), "127.0.0.1", 0)
    await listener.serve()
    try:
        yield Served(listener, dispatcher, identity)
    finally:
        listener.stop_accepting()
        listener.connections.close_all()
        await asyncio.sleep(0)


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = client_context(TlsMaterial(trusted=TRUSTED))
    talking = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        talking.do_handshake()
    return outgoing.read()


async def test_a_handshake_of_single_bytes_holds_nobody_up() -> None:
    async with served() as broker:
        slow = await broker.raw()
        for number, byte in enumerate(client_hello()):
            slow.writer.write(bytes([byte]))
            await slow.writer.drain()
            await asyncio.sleep(0)
            if number % 100 == 0:
                await broker.echoes()
        assert (await asyncio.wait_for(slow.reader.readexactly(2), TIMEOUT_S)) == b"\x16\x03", "it is answered"
        slow.writer.close()
        await broker.until_empty()


async def test_a_handshake_has_a_limit_of_time(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as broker:
        broker.listener.handshake_seconds = 0.05
        silent = await broker.raw()
        assert await asyncio.wait_for(silent.reader.read(), TIMEOUT_S) == b""
        assert "its TLS handshake took too long" in caplog.text
        await broker.until_empty()
        silent.writer.close()


async def test_half_open_handshakes_up_to_the_limit_leave_room_for_others() -> None:
    async with served(limits=ConnectionLimits(total=10, per_address=100, idle_seconds=600)) as broker:
        begun = [await broker.raw() for _ in range(40)]
        for one in begun:
            one.writer.write(client_hello()[:50])
        for _ in range(3):
            await broker.echoes()
        assert len(broker.listener.connections) <= 6
        for one in begun:
            one.writer.transport.abort()
        await broker.until_empty()


async def test_memory_is_given_back_after_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, when most of them have gone; half-open ones count too. Not for a few."""
    monkeypatch.setattr(connections_module, "MANY", 16)
    monkeypatch.setattr(connections_module, "AFTER_MANY_SECONDS", 0.0)
    async with served() as broker:
        given_back: list[bool] = []
        monkeypatch.setattr(broker.dispatcher, "give_back_memory", lambda: given_back.append(True), raising=False)
        for count, times in ((20, 1), (10, 1), (20, 2)):
            begun = [await broker.raw() for _ in range(count)]
            await until(lambda count=count: len(broker.listener.connections) == count)  # type: ignore[misc]
            for one in begun:
                one.writer.close()
            await broker.until_empty()
            await until(lambda times=times: len(given_back) >= times)  # type: ignore[misc]
            assert len(given_back) == times


@pytest.mark.parametrize("record", [29, 10_017, 16_384, 200_000])
async def test_large_frames_in_records_of_any_size(record: int) -> None:
    """Clients make records of whatever they have: librdkafka one of each key and value. With pauses in between."""
    rng = random.Random(record)
    frames = [rng.randbytes(size) for size in (5, 300_000, 70_000, 257 * 1024, 1)]
    sent = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    async with served() as broker:
        client = await broker.client()
        for number, place in enumerate(range(0, len(sent), record)):
            client.writer.write(sent[place : place + record])
            if number % 100 == 7:
                await client.writer.drain()
                await asyncio.sleep(0.001)
        for frame in frames:
            assert await asyncio.wait_for(client.receive(), TIMEOUT_S) == frame
        client.send(b"x" * 300_000)
        client.writer.transport.abort()  # and one that never comes whole
        await broker.until_empty()
        assert broker.dispatcher.memory.reserved == broker.dispatcher.memory.grown == 0


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (struct.pack(">ihhih", 20, 18, 0, 1, 8) + b"a-client", "it does not use TLS"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it uses plain HTTP"),
    ],
)
async def test_plain_text_is_told_in_one_line(caplog: pytest.LogCaptureFixture, sent: bytes, said: str) -> None:
    async with served() as broker:
        for _ in range(5):
            lost = await broker.raw()
            lost.writer.write(sent)
            await asyncio.wait_for(lost.reader.read(), TIMEOUT_S)
            lost.writer.close()
        await broker.echoes()
        await broker.until_empty()
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert said in lines[0].getMessage()


async def test_a_certificate_says_who_it_is_and_none_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    material = TlsMaterial(own(BROKER), TRUSTED, client_auth=REQUIRED)
    async with served(material, rules="RULE:^CN=([a-z]+),.*$/$1/U") as broker:
        names: list[str] = []
        dispatch = broker.dispatcher.dispatch

        def noted(exchange: Any, frame: memoryview) -> Any:
            names.append(exchange.principal)
            return dispatch(exchange, frame)

        broker.dispatcher.dispatch = noted  # type: ignore[method-assign]
        client = await broker.client(ALICE)
        client.send(b"echo")
        assert await client.receive() == b"echo"
        assert names == ["User:ALICE"]
        client.writer.close()
        for shown, said in (
            (None, "it has no certificate"),
            (make_certificate(make_authority("test"), "CN=alice,O=Acme"), "its certificate is not accepted"),
            (
                make_certificate(AUTHORITY, "CN=0,O=Acme"),
                "no rule of ssl.principal.mapping.rules fits 'CN=0,O=Acme'",
            ),
        ):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await broker.echoes(shown)
            assert said in caplog.text


async def test_new_files_are_used_and_broken_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, trusted = tmp_path / "broker.pem", tmp_path / "ca.pem"
    store.write_text(BROKER.store)
    trusted.write_text(AUTHORITY.pem)
    files = TlsMaterial(KeyStore(PEM, str(store)), TrustStore(PEM, str(trusted)), client_auth=REQUIRED)
    env = real_env()

    def serial(client: Client) -> int:
        return int(client.writer.get_extra_info("peercert")["serialNumber"], 16)

    async with served(files) as broker:
        first = await broker.client(ALICE)
        assert serial(first) == BROKER.certificate.serial_number
        assert not broker.identity.changed_on_disk()
        other = make_certificate(AUTHORITY, "broker", ("127.0.0.1",))
        store.write_text(other.store + "\n")
        assert broker.identity.changed_on_disk()
        await broker.identity.reload(env)
        assert not broker.identity.changed_on_disk()
        second = await broker.client(ALICE)
        assert serial(second) == other.certificate.serial_number
        for client in (first, second):
            client.send(b"still here")
            assert await client.receive() == b"still here"

        store.write_text("nonsense")
        await broker.identity.reload(env)
        assert "keeps its certificates" in caplog.text
        assert not broker.identity.changed_on_disk(), "what was refused is not tried again and again"
        third = await broker.client(ALICE)
        assert serial(third) == other.certificate.serial_number

        # What is trusted has changed: who was let in by a certificate must show it again.
        store.write_text(other.store)
        trusted.write_text(AUTHORITY.pem + revocations(AUTHORITY, (ALICE,)))
        await broker.identity.reload(env)
        for client in (first, second, third):
            assert await client.closed()
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await broker.echoes(ALICE)
        assert "certificate revoked" in caplog.text
        bob = await broker.client(make_certificate(AUTHORITY, "bob"))
        bob.send(b"echo")
        assert await bob.receive() == b"echo"


async def test_noise_in_every_state_leaves_nothing_behind() -> None:
    """Random bytes, changed hellos, and noise on connections that were set up rightly."""
    rng = random.Random(18)
    hello = client_hello()
    async with served() as broker:
        for number in range(60):
            peer = await (broker.raw() if number % 3 else broker.client())
            if number % 3 == 1:
                peer.writer.write(rng.randbytes(rng.randrange(1, 2000)))
            elif number % 3 == 2:
                changed = bytearray(hello[: rng.randrange(1, len(hello) + 1)])
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
                peer.writer.write(changed)
            else:
                peer.send(b"echo")
                assert await peer.receive() == b"echo"
                plain = cast(Any, peer.writer.transport)._ssl_protocol._transport
                plain.write(rng.randbytes(rng.randrange(1, 2000)))
            if number % 2:
                peer.writer.write_eof() if number % 3 else None
            await asyncio.sleep(0)
            peer.writer.transport.abort()
            if number % 10 == 0:
                await broker.echoes()
        await broker.echoes()
        await broker.until_empty()
        assert broker.dispatcher.memory.reserved == broker.dispatcher.memory.grown == 0


def test_stores_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "b.p12").write_bytes(BROKER.pkcs12("secret", AUTHORITY))
    (tmp_path / "b.pem").write_text(BROKER.store)
    (tmp_path / "encrypted.pem").write_text(BROKER.pem + BROKER.encrypted_key("secret"))
    one_line = " ".join(BROKER.pem.split("\n")), " ".join(BROKER.key.split("\n"))
    for store in (
        KeyStore(PKCS12, str(tmp_path / "b.p12"), password="secret"),
        KeyStore(JKS, str(tmp_path / "b.p12"), password="secret"),  # what keytool calls JKS today
        KeyStore(PEM, str(tmp_path / "b.pem")),
        KeyStore(PEM, str(tmp_path / "encrypted.pem"), key_password="secret"),
        KeyStore(chain=one_line[0], key=one_line[1]),
    ):
        server_context(TlsMaterial(store))
    client_context(TlsMaterial(trusted=TrustStore(PKCS12, str(tmp_path / "b.p12"), "secret")))


@pytest.mark.parametrize(
    ("content", "store", "said"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", KeyStore(JKS), "keytool -importkeystore"),
        (b"nonsense", KeyStore(PEM), "neither PEM nor PKCS#12"),
        (BROKER.pem.encode(), KeyStore(PEM), "there is no private key in it"),
        (BROKER.key.encode(), KeyStore(PEM), "there is no certificate in it"),
        ((BROKER.pem + ALICE.key).encode(), KeyStore(PEM), "does not belong to the first certificate"),
        ((BROKER.pem + BROKER.encrypted_key("x")).encode(), KeyStore(PEM), "ssl.key.password is missing"),
        (BROKER.pkcs12("x"), KeyStore(PKCS12, password="y"), "the password is wrong"),
        (BROKER.pkcs12("x"), KeyStore(PEM), "write ssl.keystore.type=PKCS12"),
        (BROKER.store.encode(), KeyStore(JKS), "write ssl.keystore.type=PEM"),
    ],
)
def test_stores_that_cannot_be_used(tmp_path: Path, content: bytes, store: KeyStore, said: str) -> None:
    (tmp_path / "store").write_bytes(content)
    with pytest.raises(TlsFault) as caught:
        server_context(TlsMaterial(replace(store, location=str(tmp_path / "store"))))
    assert said in str(caught.value)

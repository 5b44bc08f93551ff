"""A connection over a real socket: framing in every split, order of answers, back-pressure, files."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.config.listeners import ConfiguredListener
from headrace.config.principal_rules import PrincipalRules
from headrace.config.tls_config import ListenerTls
from headrace.env.certificates import Certificate, make_authority, make_certificate
from headrace.env.real import RealDisk, real_env
from headrace.env.tls import client_context
from headrace.metrics.requests import RequestMeter
from headrace.model.errors import ProtocolError
from headrace.model.limits import MAX_PENDING_RESPONSES
from headrace.model.tls import KeyStore, TlsMaterial, TrustStore
from headrace.server.connections import ConnectionLimits, ConnectionSet
from headrace.server.direct_loop import DirectLoop
from headrace.server.exchange import OWN_BUFFER_FROM, Exchange
from headrace.server.framing import FramedPending, framed
from headrace.server.line_limit import LineLimit
from headrace.server.listener import SocketOptions
from headrace.server.request_memory import RequestMemory
from headrace.server.socket_link import SCRATCH_SIZE, SENDFILE_FROM, SocketLink
from headrace.server.tls.identity import TlsIdentity
from headrace.server.tls.listener import TlsListener
from headrace.server.turns import Turns
from headrace.services.reply import CloseConnection, Pending, Piece
from headrace.storage.files import FileRange, OpenFile
from headrace.storage.health import DirectoryHealth

LIMITS = ConnectionLimits(total=100, per_address=100, idle_seconds=600)


class EchoDispatcher:
    """Answers each frame with its own bytes; the first byte says how."""

    def __init__(self) -> None:
        self.broker = cast(Any, SimpleNamespace(env=real_env()))
        self.max_request_bytes = 8 * 1024 * 1024
        self.unproven_bytes: dict[str, int] = {}
        clock = self.broker.env.clock
        self.monotonic = clock.monotonic
        self.now = 0.0
        self.slice_seconds = 1.0
        self.turns = Turns(clock)
        self.lines = LineLimit(clock, logging.getLogger(__name__))
        self.memory = RequestMemory(1024 * 1024, clock)
        self.meter = RequestMeter()
        self.waiting: list[Pending] = []
        self.seen: list[bytes] = []
        self.file: OpenFile | None = None

    def dispatch(self, exchange: Exchange, frame: memoryview) -> list[Piece] | FramedPending | None:
        data = bytes(frame)
        self.seen.append(data)
        kind = data[:1]
        if kind == b"W":
            return self._wait(exclusive=False)
        if kind == b"X":
            return self._wait(exclusive=True)
        if kind == b"N":
            return None
        if kind == b"!":
            raise ProtocolError("as asked")
        if kind == b"C":
            raise CloseConnection("as asked")
        if kind == b"B":
            raise RuntimeError("a bug, as asked")
        if kind == b"F":
            position, size = struct.unpack(">qq", data[1:17])
            assert self.file is not None
            return framed([b"head", FileRange(self.file, position, size), b"tail"], 7, False, self.meter)
        return framed(data, 7, False, self.meter)

    def _wait(self, exclusive: bool) -> FramedPending:
        pending = Pending()
        self.waiting.append(pending)
        return FramedPending(pending, 7, False, exclusive, self.meter)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(struct.pack(">i", len(body)) + body for body in bodies))

    async def receive(self) -> bytes:
        size, correlation = struct.unpack(">ii", await asyncio.wait_for(self.reader.readexactly(8), 60))
        assert correlation == 7
        return await asyncio.wait_for(self.reader.readexactly(size - 4), 60)

    async def closed(self) -> bool:
        return await asyncio.wait_for(self.reader.read(), 60) == b""


ABOUT_PLAIN_LINKS = (
    "test_a_disk_that_fails_under_sendfile_is_judged",
    "test_a_network_that_fails_in_the_middle_of_a_large_frame",
    "test_tls_on_a_plain_listener_is_told",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test is run over both kinds of link, but for those that are about one of them."""
    kinds = ["plain"] if metafunc.function.__name__ in ABOUT_PLAIN_LINKS else ["plain", "tls"]
    metafunc.parametrize("over_tls", kinds, indirect=True)


@pytest.fixture(autouse=True)
def over_tls(request: pytest.FixtureRequest) -> Iterator[None]:
    global authority
    if request.param == "tls":
        authority = make_authority("test")
    yield
    authority = None


authority: Certificate | None = None
"""Who signs the broker's certificate, in tests over TLS."""


@asynccontextmanager
async def served_over_tls(
    dispatcher: EchoDispatcher, limits: ConnectionLimits, authority: Certificate
) -> AsyncIterator[tuple[Client, ConnectionSet]]:
    store = make_certificate(authority, "broker", ("127.0.0.1",))
    material = TlsMaterial(KeyStore(chain=store.pem, key=store.key), TrustStore(certificates=authority.pem))
    settings = ListenerTls(material, PrincipalRules.parse("DEFAULT"), names_principals=True)
    identity = TlsIdentity(ConfiguredListener("SSL", "127.0.0.1", 0, "SSL"), settings)
    listener = TlsListener(dispatcher.broker.env, "SSL", limits, SocketOptions(50, -1, -1), identity)
    await listener.open(cast(Any, dispatcher), "127.0.0.1", 0)
    await listener.serve()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=client_context(material))
    try:
        yield Client(reader, writer), listener.connections
    finally:
        writer.close()
        listener.stop_accepting()
        listener.connections.close_all()
        await asyncio.sleep(0)


@asynccontextmanager
async def served(
    dispatcher: EchoDispatcher, limits: ConnectionLimits = LIMITS
) -> AsyncIterator[tuple[Client, ConnectionSet]]:
    if authority is not None:
        async with served_over_tls(dispatcher, limits, authority) as secured:
            yield secured
        return
    loop = asyncio.get_running_loop()
    direct = loop.direct if isinstance(loop, DirectLoop) else None
    connections = ConnectionSet("PLAINTEXT", limits, dispatcher.broker.env.clock, direct)
    server = await loop.create_server(lambda: SocketLink(cast(Any, dispatcher), connections), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield Client(reader, writer), connections
    finally:
        writer.close()
        server.close()
        connections.close_all()


async def another(client: Client) -> Client:
    """A second client of the same listener."""
    address = client.writer.get_extra_info("peername")
    context = None
    if authority is not None:
        context = client_context(TlsMaterial(trusted=TrustStore(certificates=authority.pem)))
    return Client(*await asyncio.open_connection(*address, ssl=context))


async def settle() -> None:
    await asyncio.sleep(0.05)


async def test_frames_that_arrive_byte_by_byte_and_together() -> None:
    bodies = [b"echo one", b"echo two" * 100, b"e"]
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    async with served(EchoDispatcher()) as (client, _):
        client.writer.write(stream)
        assert [await client.receive() for _ in bodies] == bodies
        for byte in stream:
            client.writer.write(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert [await client.receive() for _ in bodies] == bodies


@pytest.mark.parametrize("size", [SCRATCH_SIZE - 4, SCRATCH_SIZE - 3, SCRATCH_SIZE, 6 * 1024 * 1024])
async def test_frames_around_and_beyond_the_shared_buffer(size: int) -> None:
    body = b"e" + os.urandom(size - 1)
    async with served(EchoDispatcher()) as (client, _):
        client.send(b"e-before", body, b"e-after")
        assert await client.receive() == b"e-before"
        assert await client.receive() == body
        assert await client.receive() == b"e-after"


async def test_answers_keep_the_order_of_requests() -> None:
    dispatcher = EchoDispatcher()
    async with served(dispatcher) as (client, _):
        client.send(b"W", b"e1", b"W", b"e2", b"N")
        await settle()
        assert len(dispatcher.seen) == 5, "a request that waits does not hold back the handling of later ones"
        dispatcher.waiting[1].complete(b"second")
        dispatcher.waiting[0].complete(b"first")
        assert [await client.receive() for _ in range(4)] == [b"first", b"e1", b"second", b"e2"]


async def test_an_exclusive_request_holds_back_the_handling_of_later_ones() -> None:
    dispatcher = EchoDispatcher()
    async with served(dispatcher) as (client, _):
        client.send(b"X", b"e1")
        await settle()
        client.send(b"e2")
        await settle()
        assert dispatcher.seen == [b"X"]
        dispatcher.waiting[0].complete(b"done")
        assert [await client.receive() for _ in range(3)] == [b"done", b"e1", b"e2"]


async def test_too_many_waiting_answers_stop_the_reading() -> None:
    dispatcher = EchoDispatcher()
    async with served(dispatcher) as (client, _):
        client.send(b"W", *[b"e"] * (3 * MAX_PENDING_RESPONSES))
        await settle()
        assert len(dispatcher.seen) == MAX_PENDING_RESPONSES
        dispatcher.waiting[0].complete(b"go")
        assert await client.receive() == b"go"
        for _ in range(3 * MAX_PENDING_RESPONSES):
            assert await client.receive() == b"e"


async def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    dispatcher = EchoDispatcher()
    body = b"e" * 100_000
    async with served(dispatcher) as (client, _):
        for _ in range(400):
            client.send(body)
        await settle()
        handled = len(dispatcher.seen)
        assert handled < 400, "40 MB of answers are not kept in memory for a client that does not take them"
        for _ in range(400):
            assert await client.receive() == body


@pytest.mark.parametrize("kind", [b"!", b"C", b"B"])
async def test_broken_requests_and_our_own_faults_end_the_connection_only(kind: bytes) -> None:
    dispatcher = EchoDispatcher()
    async with served(dispatcher) as (client, connections):
        client.send(b"e-answered", kind, b"e-never")
        assert await client.receive() == b"e-answered"
        assert await client.closed()
        await settle()
        assert len(connections) == 0
        assert b"e-never" not in dispatcher.seen


@pytest.mark.parametrize("length", [-1, 0, -(2**31), 2**31 - 1, 8 * 1024 * 1024 + 1])
async def test_impossible_lengths_end_the_connection(length: int) -> None:
    async with served(EchoDispatcher()) as (client, _):
        client.writer.write(struct.pack(">i", length) + b"xxxx")
        assert await client.closed()


async def test_a_lost_connection_cancels_what_waits() -> None:
    dispatcher = EchoDispatcher()
    async with served(dispatcher) as (client, connections):
        client.send(b"W")
        await settle()
        client.writer.close()
        await settle()
        assert dispatcher.waiting[0].done
        assert len(connections) == 0


@pytest.mark.parametrize("size", [1, 1000, SENDFILE_FROM - 1, SENDFILE_FROM, 5_000_000])
async def test_ranges_of_files_are_sent_in_place(tmp_path: Path, size: int) -> None:
    """R-LOG-2"""
    content = os.urandom(6_000_000)
    (tmp_path / "segment").write_bytes(content)
    dispatcher = EchoDispatcher()
    dispatcher.file = OpenFile(RealDisk(), str(tmp_path / "segment"), os.O_RDONLY)
    async with served(dispatcher) as (client, _):
        client.send(b"e-before", *[b"F" + struct.pack(">qq", 17 * n, size) for n in range(4)], b"e-after")
        assert await client.receive() == b"e-before"
        for n in range(4):
            assert await client.receive() == b"head" + content[17 * n : 17 * n + size] + b"tail"
        assert await client.receive() == b"e-after"


@pytest.mark.parametrize("size", [1000, 5_000_000])
async def test_cold_ranges_are_read_by_a_thread(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(6_000_000)
    (tmp_path / "segment").write_bytes(content)
    warmed = []

    def never_cached(piece: FileRange) -> bool:
        return False

    def warm(piece: FileRange) -> None:
        warmed.append(piece)

    monkeypatch.setattr("headrace.server.file_sender._is_cached", never_cached)
    monkeypatch.setattr("headrace.server.file_sender.warm", warm)
    monkeypatch.setattr("headrace.server.socket_link._read_if_cached", lambda piece, place: False)
    monkeypatch.setattr("headrace.server.tls.outgoing.warm", warm)
    monkeypatch.setattr("headrace.server.tls.outgoing.read_cached", lambda piece, place: 0)
    dispatcher = EchoDispatcher()
    dispatcher.file = OpenFile(RealDisk(), str(tmp_path / "segment"), os.O_RDONLY)
    async with served(dispatcher) as (client, _):
        client.send(b"F" + struct.pack(">qq", 9, size), b"e-after")
        assert await client.receive() == b"head" + content[9 : 9 + size] + b"tail"
        assert await client.receive() == b"e-after"
    assert len(warmed) == 1


@pytest.mark.parametrize("size", [1000, 5_000_000])
@pytest.mark.parametrize("call", ["preadv", "warm"])
async def test_a_disk_that_fails_while_a_range_is_sent_is_judged(
    tmp_path: Path, size: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response has begun, so that only the connection can end; the next request is told why."""
    await check_that_a_failing_disk_is_judged(tmp_path, size, call, monkeypatch)


@pytest.mark.parametrize("size", [1000, 5_000_000])
async def test_a_disk_that_fails_under_sendfile_is_judged(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only plain links send so: what goes over TLS is read before."""
    await check_that_a_failing_disk_is_judged(tmp_path, size, "sendfile", monkeypatch)


async def check_that_a_failing_disk_is_judged(
    tmp_path: Path, size: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    if call == "warm":
        monkeypatch.setattr("headrace.server.file_sender.warm", fail)
        monkeypatch.setattr("headrace.server.file_sender._is_cached", lambda piece: False)
        monkeypatch.setattr("headrace.server.tls.outgoing.warm", fail)
        monkeypatch.setattr("headrace.server.tls.outgoing.read_cached", lambda piece, place: 0)
    else:
        monkeypatch.setattr(f"headrace.server.file_sender.os.{call}", fail)
    if call != "preadv":
        monkeypatch.setattr("headrace.server.socket_link._read_if_cached", lambda piece, place: False)
    (tmp_path / "segment").write_bytes(bytes(6_000_000))
    health = DirectoryHealth("d")
    dispatcher = EchoDispatcher()
    dispatcher.file = OpenFile(RealDisk(), str(tmp_path / "segment"), os.O_RDONLY, health)
    async with served(dispatcher) as (client, _):
        client.send(b"F" + struct.pack(">qq", 9, size))
        await client.closed()
    assert health.failure is not None
    assert health.failure.errno == errno.EIO


@pytest.mark.parametrize("later", [False, True], ids=["at once", "after waiting"])
async def test_a_file_that_cannot_be_read_ends_its_connection_only(tmp_path: Path, later: bool) -> None:
    """The loop and all other connections live on."""
    (tmp_path / "segment").write_bytes(bytes(1000))
    dispatcher = EchoDispatcher()
    dispatcher.file = OpenFile(RealDisk(), str(tmp_path / "segment"), os.O_WRONLY)
    async with served(dispatcher) as (client, connections):
        other = await another(client)
        other.send(b"e-before")
        assert await other.receive() == b"e-before"
        client.send(*[b"W"] * later, b"F" + struct.pack(">qq", 0, 1000))
        await settle()
        for pending in dispatcher.waiting:
            pending.complete(b"now")
        assert await client.closed()
        assert len(connections) == 1
        other.send(b"e-after")
        assert await other.receive() == b"e-after"
        other.writer.close()


async def test_a_client_that_leaves_while_a_file_is_sent(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(50_000_000))
    dispatcher = EchoDispatcher()
    dispatcher.file = OpenFile(RealDisk(), str(tmp_path / "segment"), os.O_RDONLY)
    async with served(dispatcher) as (client, connections):
        client.send(b"F" + struct.pack(">qq", 0, 50_000_000))
        await client.reader.readexactly(1000)
        client.writer.transport.abort()
        await settle()
        assert len(connections) == 0


async def test_limits_on_connections() -> None:
    async with served(EchoDispatcher(), ConnectionLimits(total=1, per_address=100, idle_seconds=600)) as (
        client,
        _,
    ):
        client.send(b"e")
        assert await client.receive() == b"e"
        host, port = client.writer.get_extra_info("peername")
        reader, writer = await asyncio.open_connection(host, port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    dispatcher = EchoDispatcher()
    async with served(dispatcher) as (client, connections):
        client.send(b"W")
        await settle()
        for _ in range(3):
            connections.close_idle()
        dispatcher.waiting[0].complete(b"late")
        assert await client.receive() == b"late"
        connections.close_idle()
        connections.close_idle()
        assert await client.closed()


async def test_large_requests_wait_for_memory_and_all_are_answered() -> None:
    """queued.max.request.bytes: what does not fit stays in its socket until the ones before it are done."""
    dispatcher = EchoDispatcher()
    body = b"e" + b"x" * 700_000
    async with served(dispatcher) as (first, connections):
        second, third = [await another(first) for _ in range(2)]
        first.writer.write(struct.pack(">i", len(body)) + body[:400_000])
        await settle()
        assert dispatcher.memory.reserved == len(body) + 4
        for client in (second, third):
            client.send(body)
        await settle()
        assert dispatcher.memory.reserved == len(body) + 4
        assert not dispatcher.seen
        first.writer.write(body[400_000:])
        for client in (first, second, third):
            assert await client.receive() == body
        assert dispatcher.memory.reserved == 0
        second.writer.close()
        third.writer.close()
        assert len(connections) >= 1


async def test_the_memory_of_a_lost_connection_comes_back() -> None:
    dispatcher = EchoDispatcher()
    async with served(dispatcher) as (first, _):
        other = await another(first)
        other.writer.write(struct.pack(">i", 900_000) + bytes(OWN_BUFFER_FROM))
        await settle()
        first.send(b"e" + b"y" * 500_000)
        await settle()
        assert dispatcher.memory.reserved == 900_004
        other.writer.transport.abort()  # a goodbye of TLS would be answered first, and waited for
        assert len(await first.receive()) == 500_001
        assert dispatcher.memory.reserved == 0


async def test_a_length_that_comes_alone_before_all_of_its_frame() -> None:
    """The four bytes first, and when we look again everything else is there already."""
    async with served(EchoDispatcher()) as (client, _):
        body = b"e" + b"z" * 300_000
        client.writer.write(struct.pack(">i", len(body)))
        await settle()
        client.writer.write(body)
        assert await client.receive() == body


async def test_a_frame_of_many_megabytes() -> None:
    """Its memory comes from elsewhere than that of smaller ones."""
    async with served(EchoDispatcher()) as (client, _):
        body = b"e" + bytes(range(256)) * 20_000
        client.send(body)
        assert await client.receive() == body


async def test_a_network_that_fails_in_the_middle_of_a_large_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that timed out is no ConnectionError: it was nobody's, and ended the broker."""
    real = os.readv
    failed: list[int] = []

    def readv(descriptor: int, buffers: Any) -> int:
        if len(buffers[0]) > 1_000_000 and not failed:
            failed.append(descriptor)
            raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")
        return real(descriptor, buffers)

    monkeypatch.setattr(os, "readv", readv)
    async with served(EchoDispatcher()) as (client, _):
        body = b"e" + bytes(range(256)) * 20_000
        client.send(body)
        assert await client.receive() == body
        assert failed


async def test_tls_on_a_plain_listener_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with served(EchoDispatcher()) as (client, _):
        client.writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))
        assert await client.closed()
    assert "it uses TLS, but this listener does not" in caplog.text

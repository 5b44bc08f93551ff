"""One connection: versions, answers out of order, and what is told when no broker answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import subprocess
from pathlib import Path

import pytest

from headrace.client import diagnosis
from headrace.client.address import Address
from headrace.client.connection import ClientSettings, open_connection
from headrace.client.errors import CannotReach, ConnectionLost, Reason, RequestTimedOut
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.header import parse_request_header, response_header
from headrace.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from headrace.wire.schema import Response
from tests.unit.client.conftest import Serve, broker

QUICK = ClientSettings(connect_timeout_s=0.3, request_timeout_s=0.3)
"""For what never answers."""
PATIENT = ClientSettings(connect_timeout_s=60.0, request_timeout_s=60.0)


async def reason(address: Address) -> Reason:
    with pytest.raises(CannotReach) as caught:
        await open_connection(address, QUICK)
    assert caught.value.address == address
    return caught.value.reason


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_nothing_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert await reason(Address("127.0.0.1", unused.getsockname()[1])) is Reason.REFUSED


async def test_an_unknown_host() -> None:
    assert await reason(Address("no-such-host.invalid", 9092)) is Reason.UNKNOWN_HOST


async def test_an_http_server_that_answers_anything(serve: Serve) -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    assert await reason(await serve(http)) is Reason.HTTP


async def test_an_http_server_that_waits_for_a_line(serve: Serve) -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n")

    assert await reason(await serve(http)) is Reason.HTTP


async def test_tls_that_answers_with_an_alert(serve: Serve) -> None:
    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x15\x03\x01\x00\x02\x02\x46")

    assert await reason(await serve(alert)) is Reason.TLS


async def test_tls_that_hangs_up_on_plain_text(tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=x"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(silence, "127.0.0.1", 0, ssl=context)
    try:
        assert await reason(Address("127.0.0.1", server.sockets[0].getsockname()[1])) is Reason.TLS
    finally:
        server.close()


async def test_silence_and_a_closed_door(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "PROBE_TIMEOUT_S", 0.1)

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    assert await reason(await serve(silence)) is Reason.SILENT
    assert await reason(await serve(close)) is Reason.CLOSED


async def test_something_else(serve: Serve) -> None:
    async def mail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n")
        await reader.read()

    assert await reason(await serve(mail)) is Reason.NOT_KAFKA


@pytest.mark.parametrize(("ends", "expected"), [(False, Reason.SILENT), (True, Reason.CLOSED)])
async def test_an_answer_that_does_not_come_whole_is_still_a_brokers(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, ends: bool, expected: Reason
) -> None:
    monkeypatch.setattr(diagnosis, "PROBE_TIMEOUT_S", 0.1)

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
        writer.write(struct.pack(">ii", 300, parse_request_header(frame).correlation_id))
        if not ends:
            await reader.read()

    assert await reason(await serve(half)) is expected


async def test_the_highest_version_of_both_is_used(serve: Serve) -> None:
    seen: list[int] = []

    def answer(key: int, version: int, body: bytes) -> Response:
        seen.append(version)
        return MetadataResponse(controller_id=7)

    connection = await open_connection(await serve(broker(answer, {3: (1, 5)})), PATIENT)
    response = await connection.request(MetadataRequest(topics=[]), MetadataResponse)
    await connection.request(MetadataRequest(topics=[]), MetadataResponse, highest=4)
    connection.close()
    assert (response.controller_id, seen) == (7, [5, 4])


async def test_no_version_in_common(serve: Serve) -> None:
    connection = await open_connection(await serve(broker(lambda *_: None, {3: (90, 91)})), PATIENT)
    with pytest.raises(KafkaError) as caught:
        await connection.request(MetadataRequest(), MetadataResponse)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
    connection.close()


async def test_a_broker_that_knows_only_the_oldest_api_versions(serve: Serve) -> None:
    """KIP-511: it answers in v0 with UNSUPPORTED_VERSION."""

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(size)
            _, version, correlation = struct.unpack_from(">hhi", frame)
            body = struct.pack(">hihhh", 0, 1, 3, 0, 2) if version == 0 else struct.pack(">hi", 35, 0)
            writer.write(struct.pack(">ii", len(body) + 4, correlation) + body)
        await reader.read()

    connection = await open_connection(await serve(old), PATIENT)
    assert connection.versions == {3: range(3)}
    connection.close()


async def test_a_request_without_an_answer_times_out(serve: Serve) -> None:
    async def only_versions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
        header = parse_request_header(frame)
        keys = [ApiVersion(api_key=3, min_version=0, max_version=5)]
        body = response_header(18, header.api_version, header.correlation_id)
        body += ApiVersionsResponse(api_keys=keys).encode(header.api_version)
        writer.write(struct.pack(">i", len(body)) + body)
        await reader.read()

    connection = await open_connection(await serve(only_versions), QUICK)
    with pytest.raises(RequestTimedOut, match=r"did not answer Metadata in 0\.3 s"):
        await connection.request(MetadataRequest(topics=[]), MetadataResponse)
    connection.close()


async def test_an_answer_in_the_turn_in_which_its_time_ran_out_counts(serve: Serve) -> None:
    """It was there; only our own loop was too busy to look at it."""
    loop, timeout_s = asyncio.get_running_loop(), 0.05

    def busy(key: int, version: int, body: bytes) -> Response:
        until = loop.time() + timeout_s
        while loop.time() < until:
            pass
        return MetadataResponse(controller_id=7)

    connection = await open_connection(await serve(broker(busy, {3: (1, 5)})), PATIENT)
    response = await connection.request(MetadataRequest(topics=[]), MetadataResponse, timeout_s=timeout_s)
    connection.close()
    assert response.controller_id == 7


async def test_a_lost_connection_fails_what_waits_and_what_comes(serve: Serve) -> None:
    connection = await open_connection(await serve(broker(lambda *_: None, {3: (0, 5)})), PATIENT)
    for _ in range(2):
        with pytest.raises(ConnectionLost):
            await connection.request(MetadataRequest(topics=[]), MetadataResponse)
    assert connection.closed

"""One connection to one broker on an event loop: requests go out as they come, any number may be outstanding.

`protocol` says what is sent; this module waits for the responses. If something else answers (an HTTP server, TLS),
the error says so, since that is the usual wrong port. A large response is received into memory that is reused, see
`buffers`: a view of it that was returned without copying stays valid for as long as it is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from headrace.client.address import Address
from headrace.client.buffers import ReusedBuffers
from headrace.client.diagnosis import probe, recognize
from headrace.client.errors import CannotReach, ClientError, Reason, connect_failure, reason_of, tls_failure
from headrace.client.framing import RECEIVE_BUFFER_BYTES, FrameReader
from headrace.client.login import ClientLogin
from headrace.client.protocol import NO_VERSION_LIMIT, ClientProtocol, Ticket, next_step
from headrace.model.errors import ProtocolError
from headrace.wire.schema import Request, Response

if TYPE_CHECKING:
    from headrace.client.security import TlsContext

R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    client_id: str = "headrace"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    login: ClientLogin | None = None
    """The user and the credentials to log in with, where the brokers require it."""
    tls: TlsContext | None = None
    """The trusted authorities and the own certificate, where the brokers speak TLS. Called for each connection."""


LOG_IN_AGAIN_AFTER = 0.85
"""The part of a session's time after which a client logs in again."""


class _Wire(asyncio.BufferedProtocol):
    """The bytes of a connection: received, sent, the futures of those who wait for them, and why it ended."""

    def __init__(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}
        self._transport: asyncio.Transport | None = None
        self.closed = False
        self.failure: Exception | None = None
        """The error that ended it, if it was not closed normally."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._protocol.writable()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            answers = self._protocol.received(nbytes)
        except ProtocolError as error:
            self.failure = error
            self.close()
            return
        for ticket, frame in answers:
            waiting = self._waiting.pop(ticket.correlation_id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.failure = self.failure or exc
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(EOFError())
        self._waiting.clear()

    def send(self, frame: bytearray) -> None:
        assert self._transport is not None
        self._transport.write(frame)

    def expect(self, ticket: Ticket) -> asyncio.Future[memoryview]:
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting[ticket.correlation_id] = future
        return future

    def forget(self, ticket: Ticket) -> None:
        self._waiting.pop(ticket.correlation_id, None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class ClientConnection:
    """A connection. Created by `open_connection`."""

    def __init__(self, settings: ClientSettings, protocol: ClientProtocol, wire: _Wire) -> None:
        self._settings = settings
        self._protocol = protocol
        self._wire = wire
        self._now = asyncio.get_running_loop().time
        self._log_in_again_at: float | None = None
        self._logging_in = asyncio.Lock()

    @property
    def address(self) -> Address:
        return self._protocol.address

    @property
    def closed(self) -> bool:
        return self._wire.closed

    @property
    def first_bytes(self) -> bytes:
        return self._protocol.first_bytes

    @property
    def failure(self) -> Exception | None:
        return self._wire.failure

    @property
    def versions(self) -> Mapping[int, range]:
        """The versions that the broker supports, by API key."""
        return self._protocol.versions

    def version_for(self, message: type[Request], highest: int = NO_VERSION_LIMIT) -> int:
        """The highest version of a request that both sides have."""
        return self._protocol.version_for(message, highest)

    async def request(
        self, message: Request, answer: type[R], *, highest: int = NO_VERSION_LIMIT, timeout_s: float | None = None
    ) -> R:
        """Send a request and wait for its answer."""
        self._check_open()
        if self._log_in_again_at is not None and self._now() >= self._log_in_again_at:
            await self._log_in_again()
        version = self.version_for(type(message), highest)
        ticket, out = self._protocol.request(message, version, timeout_s or self._settings.request_timeout_s)
        return self._protocol.decode(ticket, await self._roundtrip(ticket, out), answer)

    def post(self, message: Request, *, highest: int = NO_VERSION_LIMIT) -> None:
        """Send a request that is not answered (Produce with acks=0)."""
        self._wire.send(self._protocol.post(message, self.version_for(type(message), highest)))

    async def negotiate(self) -> None:
        self._check_open()
        handshake = self._protocol.handshake(self._settings.connect_timeout_s)
        step = next_step(handshake)
        while step is not None:
            step = next_step(handshake, await self._roundtrip(*step))

    async def log_in(self) -> None:
        login = self._settings.login
        if login is not None:
            if login.token is not None:  # its issuer may be slow: nobody else waits
                token = await asyncio.get_running_loop().run_in_executor(None, login.token)
                login = replace(login, token=lambda: token)
            conversation = self._protocol.log_in(login, self._settings.connect_timeout_s)
            step = next_step(conversation)
            while step is not None:
                step = next_step(conversation, await self._roundtrip(*step))
            session_s = self._protocol.session_ms / 1000
            self._log_in_again_at = self._now() + session_s * LOG_IN_AGAIN_AFTER if session_s else None

    async def _log_in_again(self) -> None:
        """Log in again before the session ends (KIP-368): new requests wait, outstanding ones are answered."""
        async with self._logging_in:
            if self._log_in_again_at is not None and self._now() >= self._log_in_again_at:
                await self.log_in()

    async def flush(self) -> None:
        """Wait until the broker has received everything that was posted: it reads a connection in order."""
        await self.negotiate()

    def close(self) -> None:
        self._wire.close()

    def _check_open(self) -> None:
        if self.closed:
            raise self._protocol.lost()

    async def _roundtrip(self, ticket: Ticket, out: bytearray) -> memoryview:
        waiting = self._wire.expect(ticket)
        self._wire.send(out)
        try:
            async with asyncio.timeout(ticket.timeout_s):
                return await waiting
        except TimeoutError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                return waiting.result()  # it came in the turn in which the time ran out: only we were late
            raise self._protocol.timed_out(ticket) from None
        except EOFError:
            raise self._protocol.lost() from None
        finally:
            self._wire.forget(ticket)


async def open_connection(
    address: Address, settings: ClientSettings, broker_id: int | None = None
) -> ClientConnection:
    """Connect and agree on versions, or raise `CannotReach` with the reason."""
    frames = FrameReader(RECEIVE_BUFFER_BYTES, ReusedBuffers().take)
    protocol = ClientProtocol(address, settings.client_id, frames)
    wire = _Wire(protocol)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            context = None if settings.tls is None else settings.tls()
            await loop.create_connection(lambda: wire, address.host, address.port, ssl=context)
    except OSError as error:
        raise connect_failure(address, error, settings.connect_timeout_s, broker_id) from None
    connection = ClientConnection(settings, protocol, wire)
    try:
        await connection.negotiate()
        await connection.log_in()
    except (ClientError, ProtocolError) as error:
        connection.close()
        if settings.tls is not None:
            reason, detail = tls_failure(connection.failure) or (reason_of(error), "")
            raise CannotReach(address, reason, detail, broker_id) from None
        reason = _who_spoke(connection, error) or await probe(address) or reason_of(error)
        raise CannotReach(address, reason, broker_id=broker_id) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _who_spoke(connection: ClientConnection, error: Exception) -> Reason | None:
    """The reason for the failure, by the first bytes received. After a late answer, or one cut short by its
    broker, those are Kafka's own."""
    recognized = recognize(connection.first_bytes)
    if recognized is not Reason.NOT_KAFKA:
        return recognized
    nonsense = isinstance(error, ProtocolError) or isinstance(connection.failure, ProtocolError)
    return Reason.NOT_KAFKA if nonsense else reason_of(error)

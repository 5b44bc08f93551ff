"""One connection to one broker: requests go out as they come, answers find their request by correlation id.

Opening it asks for the broker's API versions; each request is then written in the highest version that both sides
have. What answers in place of a broker (an HTTP server, TLS) is told apart, since that is the usual wrong port.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from headrace.client.address import Address
from headrace.client.diagnosis import probe, recognize
from headrace.client.errors import CannotReach, ClientError, ConnectionLost, Reason, RequestTimedOut, kafka_error
from headrace.client.framing import FrameReader
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.wire.api_keys import ApiKey
from headrace.wire.header import parse_response_header, request_header
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)

_LENGTH = struct.Struct(">i")
NO_VERSION_LIMIT = 1 << 15


@dataclass(frozen=True, slots=True)
class ClientSettings:
    client_id: str = "headrace"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0


class _Wire(asyncio.BufferedProtocol):
    """The bytes of a connection: frames in, frames out, and why it ended."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}
        self._transport: asyncio.Transport | None = None
        self.closed = False

    @property
    def first_bytes(self) -> bytes:
        return self._reader.head

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._reader.received(nbytes)
        except ProtocolError:
            self.close()
            return
        for frame in frames:
            self._answer(frame)

    def _answer(self, frame: memoryview) -> None:
        correlation_id = _LENGTH.unpack_from(frame)[0] if len(frame) >= _LENGTH.size else -1
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(EOFError())
        self._waiting.clear()

    def send(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame)

    def expect(self, correlation_id: int) -> asyncio.Future[memoryview]:
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: int) -> None:
        self._waiting.pop(correlation_id, None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Connection:
    """Made by `open_connection`. Any number of requests may be outstanding at once."""

    def __init__(self, address: Address, settings: ClientSettings, wire: _Wire) -> None:
        self.address = address
        self._settings = settings
        self._wire = wire
        self._versions: Mapping[int, range] = {}
        self._last_correlation_id = 0

    @property
    def closed(self) -> bool:
        return self._wire.closed

    @property
    def first_bytes(self) -> bytes:
        return self._wire.first_bytes

    @property
    def versions(self) -> Mapping[int, range]:
        """What the broker said it has: API key -> versions."""
        return self._versions

    def version_for(self, message: type[Request], highest: int = NO_VERSION_LIMIT) -> int:
        """The highest version of a request that both sides have."""
        theirs = self._versions.get(message.api_key, range(0))
        version = min(theirs.stop - 1, message.versions.stop - 1, highest)
        if version < max(theirs.start, message.versions.start):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.address} has no version of {_name(message)} that this client speaks",
            )
        return version

    async def request(
        self, message: Request, answer: type[R], *, highest: int = NO_VERSION_LIMIT, timeout_s: float | None = None
    ) -> R:
        """Send a request and wait for its answer."""
        version = self.version_for(type(message), highest)
        return await self._exchange(message, answer, version, timeout_s or self._settings.request_timeout_s)

    def post(self, message: Request, *, highest: int = NO_VERSION_LIMIT) -> None:
        """Send a request that is not answered (Produce with acks=0)."""
        self._write(message, self.version_for(type(message), highest))

    async def negotiate(self) -> None:
        """Ask what the broker has, in the newest version it may know; an old one answers in v0 (KIP-511)."""
        message = ApiVersionsRequest(client_software_name="headrace", client_software_version="0")
        timeout_s = self._settings.connect_timeout_s
        newest = ApiVersionsRequest.versions.stop - 1
        frame = await self._roundtrip(message, newest, timeout_s)
        _, position = parse_response_header(frame, ApiKey.API_VERSIONS, newest)
        if int.from_bytes(frame[position : position + 2], "big") == ErrorCode.UNSUPPORTED_VERSION:
            response = await self._exchange(message, ApiVersionsResponse, 0, timeout_s)
        else:
            response = ApiVersionsResponse.decode(frame, newest, position)
        if response.error_code:
            raise kafka_error(response.error_code, "the broker refused ApiVersions")
        self._versions = {key.api_key: range(key.min_version, key.max_version + 1) for key in response.api_keys}

    async def flush(self) -> None:
        """Until the broker has taken all that was posted: it reads a connection in order."""
        await self.negotiate()

    def close(self) -> None:
        self._wire.close()

    async def _exchange(self, message: Request, answer: type[R], version: int, timeout_s: float) -> R:
        frame = await self._roundtrip(message, version, timeout_s)
        _, position = parse_response_header(frame, message.api_key, version)
        return answer.decode(frame, version, position)

    async def _roundtrip(self, message: Request, version: int, timeout_s: float) -> memoryview:
        if self.closed:
            raise ConnectionLost(self.address)
        waiting = self._wire.expect(correlation_id := self._write(message, version))
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            raise RequestTimedOut(self.address, _name(type(message)), timeout_s) from None
        except EOFError:
            raise ConnectionLost(self.address) from None
        finally:
            self._wire.forget(correlation_id)

    def _write(self, message: Request, version: int) -> int:
        self._last_correlation_id += 1
        header = request_header(message.api_key, version, self._last_correlation_id, self._settings.client_id)
        out = bytearray(_LENGTH.size) + header
        message.encode_into(out, version)
        _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
        self._wire.send(bytes(out))
        return self._last_correlation_id


def _name(message: type[Request]) -> str:
    return message.__name__.removesuffix("Request")


async def open_connection(address: Address, settings: ClientSettings, broker_id: int | None = None) -> Connection:
    """Connect and agree on versions, or raise `CannotReach` with the reason."""
    try:
        wire = await _connect(address, settings.connect_timeout_s)
    except CannotReach as failure:
        failure.broker_id = broker_id
        raise
    connection = Connection(address, settings, wire)
    try:
        await connection.negotiate()
    except (ClientError, ProtocolError) as error:
        connection.close()
        reason = recognize(connection.first_bytes) or await probe(address) or _reason_of(error)
        raise CannotReach(address, reason, broker_id=broker_id) from None
    except BaseException:
        connection.close()
        raise
    return connection


async def _connect(address: Address, timeout_s: float) -> _Wire:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, wire = await loop.create_connection(_Wire, address.host, address.port)
    except TimeoutError:
        raise CannotReach(address, Reason.SILENT, f"{timeout_s:g} s") from None
    except socket.gaierror as error:
        raise CannotReach(address, Reason.UNKNOWN_HOST, error.strerror or "") from None
    except ConnectionRefusedError:
        raise CannotReach(address, Reason.REFUSED) from None
    except OSError as error:
        # Several addresses behind one name, each refused, come as one plain OSError.
        if "refused" in str(error).lower() or "111" in str(error):
            raise CannotReach(address, Reason.REFUSED) from None
        reason = Reason.NO_ROUTE if "unreachable" in str(error).lower() else Reason.OTHER
        raise CannotReach(address, reason, error.strerror or str(error)) from None
    return wire


def _reason_of(error: Exception) -> Reason:
    if isinstance(error, ConnectionLost):
        return Reason.CLOSED
    return Reason.SILENT if isinstance(error, RequestTimedOut) else Reason.NOT_KAFKA

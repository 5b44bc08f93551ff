"""One connection to one broker, blocking: requests go out at once, answers are read in the order of the requests.

Opening it asks for the broker's API versions; each request is then written in the highest version that both sides
have. Every wait has a limit and an error that names what was waited for. A connection has one user at a time
(`Cluster.borrow`) and never crosses a fork.

An answer is received into memory that nobody else looks at, so what is handed out of it without copying stays
valid; see `buffers`.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from headrace.client.address import Address
from headrace.client.errors import CannotReach, ClientError, ConnectionLost, Reason, RequestTimedOut, kafka_error
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.spark.client.buffers import AnswerBuffers
from headrace.wire.api_keys import ApiKey
from headrace.wire.header import parse_response_header, request_header
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)

NO_VERSION_LIMIT = 1 << 15
MAX_FRAME_BYTES = 512 * 1024 * 1024
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How to reach a cluster. Travels from the driver to the tasks, and is the key of `shared_cluster`."""

    bootstrap: str
    client_id: str = "headrace-spark"
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    patient: bool = False
    """Whether a broker that this process never reached is waited for too, as tasks do: their driver reached it."""


class Ticket(NamedTuple):
    """A request that was sent and not yet answered."""

    correlation_id: int
    message: type[Request]
    version: int
    timeout_s: float
    """How long its answer is waited for, once somebody waits: a reader may be busy with what came before."""


class Connection:
    """Made by `Connection.open`."""

    def __init__(self, address: Address, settings: ClientSettings, sock: socket.socket) -> None:
        self.address = address
        self.first_bytes = b""
        self.closed = False
        self._settings = settings
        self._socket = sock
        self._versions: Mapping[int, range] = {}
        self._last_correlation_id = 0
        self._outstanding: deque[Ticket] = deque()
        self._buffers = AnswerBuffers()

    @classmethod
    def open(cls, address: Address, settings: ClientSettings, broker_id: int | None = None) -> Connection:
        """Connect and agree on versions, or raise `CannotReach` with the reason."""
        try:
            sock = _connect(address, settings.connect_timeout_s)
        except CannotReach as failure:
            failure.broker_id = broker_id
            raise
        connection = cls(address, settings, sock)
        try:
            connection._negotiate()
        except (ClientError, ProtocolError) as error:
            connection.close()
            raise CannotReach(address, _what_answers(connection, error), broker_id=broker_id) from None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def outstanding(self) -> int:
        """Requests sent and not yet answered."""
        return len(self._outstanding)

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_input(self) -> bool:
        """Whether an answer has begun to come, or the end of the connection."""
        return bool(readable([self], 0.0))

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

    def request(
        self, message: Request, answer: type[R], *, highest: int = NO_VERSION_LIMIT, timeout_s: float | None = None
    ) -> R:
        """Send a request and wait for its answer."""
        return self.receive(self.send(message, highest=highest, timeout_s=timeout_s), answer)

    def send(self, message: Request, *, highest: int = NO_VERSION_LIMIT, timeout_s: float | None = None) -> Ticket:
        """Send a request; `receive` gives its answer. Several may be outstanding."""
        return self._send(message, self.version_for(type(message), highest), timeout_s)

    def post(self, message: Request, *, highest: int = NO_VERSION_LIMIT) -> None:
        """Send a request that is not answered (Produce with acks=0)."""
        self._send(message, self.version_for(type(message), highest))
        self._outstanding.pop()

    def receive(self, ticket: Ticket, answer: type[R]) -> R:
        """The answer to the oldest request that has none yet, which must be this one."""
        assert self._outstanding
        assert self._outstanding[0] is ticket, "answers come in the order of the requests"
        frame = self._read_frame(ticket)
        self._outstanding.popleft()
        correlation_id, position = parse_response_header(frame, ticket.message.api_key, ticket.version)
        if correlation_id != ticket.correlation_id:
            self.close()
            raise ProtocolError(f"{self.address} answered request {correlation_id}, not {ticket.correlation_id}")
        return answer.decode(frame, ticket.version, position)

    def flush(self) -> None:
        """Until the broker has taken all that was posted: it reads a connection in order."""
        self._negotiate()

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def _negotiate(self) -> None:
        """Ask what the broker has, in the newest version it may know; an old one answers in v0 (KIP-511)."""
        message = ApiVersionsRequest(client_software_name="headrace", client_software_version="0")
        newest = ApiVersionsRequest.versions.stop - 1
        timeout_s = self._settings.connect_timeout_s
        ticket = self._send(message, newest, timeout_s)
        frame = self._read_frame(ticket)
        self._outstanding.popleft()
        _, position = parse_response_header(frame, ApiKey.API_VERSIONS, newest)
        if int.from_bytes(frame[position : position + 2], "big") == ErrorCode.UNSUPPORTED_VERSION:
            response = self.receive(self._send(message, 0, timeout_s), ApiVersionsResponse)
        else:
            response = ApiVersionsResponse.decode(frame, newest, position)
        if response.error_code:
            raise kafka_error(response.error_code, "the broker refused ApiVersions")
        self._versions = {key.api_key: range(key.min_version, key.max_version + 1) for key in response.api_keys}

    def _send(self, message: Request, version: int, timeout_s: float | None = None) -> Ticket:
        if self.closed:
            raise ConnectionLost(self.address)
        self._last_correlation_id += 1
        seconds = timeout_s or self._settings.request_timeout_s
        ticket = Ticket(self._last_correlation_id, type(message), version, seconds)
        header = request_header(message.api_key, version, ticket.correlation_id, self._settings.client_id)
        out = bytearray(_LENGTH.size) + header
        message.encode_into(out, version)
        _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(out)
        except TimeoutError:
            self.close()
            raise RequestTimedOut(self.address, _name(type(message)), seconds) from None
        except OSError:
            self.close()
            raise ConnectionLost(self.address) from None
        self._outstanding.append(ticket)
        return ticket

    def _read_frame(self, ticket: Ticket) -> memoryview:
        deadline = time.monotonic() + ticket.timeout_s
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size, ticket, deadline))
        if not 0 <= size <= MAX_FRAME_BYTES:
            # What came with it tells a web server from other strangers.
            self.first_bytes += self._socket.recv(_LENGTH.size) if self.has_input() else b""
            self.close()
            raise ProtocolError(f"{self.address} announced an answer of {size} bytes")
        return self._read(size, ticket, deadline)

    def _read(self, size: int, ticket: Ticket, deadline: float) -> memoryview:
        view = self._buffers.take(size)
        filled = 0
        try:
            while filled < size:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                count = self._socket.recv_into(view[filled:])
                if not count:
                    raise ConnectionResetError
                filled += count
                if not self.first_bytes:
                    self.first_bytes = bytes(view[:filled])
        except TimeoutError:
            self.close()
            raise RequestTimedOut(self.address, _name(ticket.message), ticket.timeout_s) from None
        except OSError:
            self.close()
            raise ConnectionLost(self.address) from None
        return view


class HasFile(Protocol):
    def fileno(self) -> int: ...


F = TypeVar("F", bound=HasFile)


def readable(waiting: Iterable[F], timeout_s: float) -> list[F]:
    """Those on which something has come, once there is one or the time is over. With none it is only a pause."""
    files = {one.fileno(): one for one in waiting}
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return [files[file] for file, _ in poll.poll(math.ceil(timeout_s * 1000))]


def _name(message: type[Request]) -> str:
    return message.__name__.removesuffix("Request")


def _connect(address: Address, timeout_s: float) -> socket.socket:
    try:
        sock = socket.create_connection((address.host, address.port), timeout=timeout_s)
    except TimeoutError:
        raise CannotReach(address, Reason.SILENT, f"{timeout_s:g} s") from None
    except socket.gaierror as error:
        raise CannotReach(address, Reason.UNKNOWN_HOST, error.strerror or "") from None
    except ConnectionRefusedError:
        raise CannotReach(address, Reason.REFUSED) from None
    except OSError as error:
        reason = Reason.NO_ROUTE if "unreachable" in str(error).lower() else Reason.OTHER
        raise CannotReach(address, reason, error.strerror or str(error)) from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _what_answers(connection: Connection, error: Exception) -> Reason:
    """Why there was no conversation. Looked into only now, with what only this needs imported only now."""
    from headrace.client.diagnosis import recognize

    if isinstance(error, ConnectionLost):
        otherwise = Reason.CLOSED
    else:
        otherwise = Reason.SILENT if isinstance(error, RequestTimedOut) else Reason.NOT_KAFKA
    return recognize(connection.first_bytes) or _probed(connection.address) or otherwise


def _probed(address: Address) -> Reason | None:
    """Whether HTTP or TLS is spoken there; in a thread, since the caller may have an event loop that runs."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from headrace.client.diagnosis import probe

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(probe(address))).result()

"""One connection to one broker, blocking: requests go out at once, answers are read in the order of the requests.

`client.protocol` has the messages; this module waits for them. Every wait has a limit and an error that names
what was waited for. A connection has one user at a time (`BlockingCluster.borrow`) and never crosses a fork.
Nothing is read beyond the end of a response, so that polling the socket shows whether the next one has arrived.

A response is received into memory of its own, so views of it stay valid; see `client.buffers`.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from headrace.client.address import Address
from headrace.client.buffers import ReusedBuffers
from headrace.client.errors import CannotReach, ClientError, Reason, connect_failure, reason_of, tls_failure
from headrace.client.framing import NO_READ_AHEAD, FrameReader
from headrace.client.gathering import GatheredFrame, send_pieces
from headrace.client.protocol import NO_VERSION_LIMIT, ClientProtocol, Ticket, next_step
from headrace.model.errors import ProtocolError
from headrace.wire.schema import Request, Response

if TYPE_CHECKING:
    from headrace.client.security import ClientSecurity

R = TypeVar("R", bound=Response)

_MORE_FIRST_BYTES = 4


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How to reach a cluster. Sent from the driver to the tasks, and the key of `shared_cluster`."""

    bootstrap: str
    client_id: str = "headrace-spark"
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    patient: bool = False
    """Whether to wait also for a broker that this process never reached, as tasks do: their driver reached it."""
    security: ClientSecurity | None = None
    """The credentials, and the authorities to trust with TLS."""


class BlockingConnection:
    """A blocking connection. Created by `BlockingConnection.open`."""

    def __init__(self, settings: ClusterSettings, protocol: ClientProtocol, sock: socket.socket) -> None:
        self.closed = False
        self.first_bytes = b""
        """The first bytes of a peer whose answer is not a broker's."""
        self._settings = settings
        self._protocol = protocol
        self._socket = sock
        self.failure: OSError | None = None
        """The error that ended it."""

    @property
    def secured(self) -> bool:
        return hasattr(self._socket, "pending")

    @property
    def buffered(self) -> bool:
        """Whether there is input that polling the socket does not show, because TLS has read it already."""
        return not self.closed and self.secured and self._socket.pending() > 0  # type: ignore[attr-defined]

    @classmethod
    def open(cls, address: Address, settings: ClusterSettings, broker_id: int | None = None) -> BlockingConnection:
        """Connect and agree on versions, or raise `CannotReach` with the reason."""
        try:
            sock = _connected(address, settings)
        except OSError as error:
            raise connect_failure(address, error, settings.connect_timeout_s, broker_id) from None
        frames = FrameReader(NO_READ_AHEAD, ReusedBuffers().take)
        protocol = ClientProtocol(address, settings.client_id, frames, GatheredFrame)
        connection = cls(settings, protocol, sock)
        try:
            connection._negotiate()
            connection._log_in()
        except (ClientError, ProtocolError) as error:
            connection.close()
            if connection.secured:
                reason, detail = tls_failure(connection.failure) or (reason_of(error), "")
                raise CannotReach(address, reason, detail, broker_id) from None
            reason = _what_answers(address, connection.first_bytes) or reason_of(error)
            raise CannotReach(address, reason, broker_id=broker_id) from None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def address(self) -> Address:
        return self._protocol.address

    @property
    def outstanding(self) -> int:
        """Requests sent and not yet answered."""
        return self._protocol.outstanding

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_input(self) -> bool:
        """Whether a response has begun to arrive, or the connection has ended."""
        return bool(readable([self], 0.0))

    def version_for(self, message: type[Request], highest: int = NO_VERSION_LIMIT) -> int:
        """The highest version of a request that both sides have."""
        return self._protocol.version_for(message, highest)

    def request(
        self, message: Request, answer: type[R], *, highest: int = NO_VERSION_LIMIT, timeout_s: float | None = None
    ) -> R:
        """Send a request and wait for its answer."""
        return self.receive(self.send(message, highest=highest, timeout_s=timeout_s), answer)

    def send(self, message: Request, *, highest: int = NO_VERSION_LIMIT, timeout_s: float | None = None) -> Ticket:
        """Send a request; `receive` returns its answer. Several may be outstanding."""
        self._check_open()
        version = self.version_for(type(message), highest)
        ticket, out = self._protocol.request(message, version, timeout_s or self._settings.request_timeout_s)
        self._write(out, ticket)
        return ticket

    def post(self, message: Request, *, highest: int = NO_VERSION_LIMIT) -> None:
        """Send a request that is not answered (Produce with acks=0)."""
        self._check_open()
        version = self.version_for(type(message), highest)
        ticket = Ticket(0, type(message), version, self._settings.request_timeout_s)
        self._write(self._protocol.post(message, version), ticket)

    def receive(self, ticket: Ticket, answer: type[R]) -> R:
        """The answer to the oldest request that has none yet, which must be this one."""
        assert self._protocol.is_next(ticket), "answers come in the order of the requests"
        return self._protocol.decode(ticket, self._read(ticket), answer)

    def flush(self) -> None:
        """Wait until the broker has read everything that was posted; it reads a connection in order."""
        self._negotiate()

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def _check_open(self) -> None:
        if self.closed:
            raise self._protocol.lost()

    def _negotiate(self) -> None:
        self._check_open()
        handshake = self._protocol.handshake(self._settings.connect_timeout_s)
        step = next_step(handshake)
        while step is not None:
            ticket, out = step
            self._write(out, ticket)
            step = next_step(handshake, self._read(ticket))

    def _log_in(self) -> None:
        security = self._settings.security
        if security is None or security.login is None:
            return
        conversation = self._protocol.log_in(security.login, self._settings.connect_timeout_s)
        step = next_step(conversation)
        while step is not None:
            ticket, out = step
            self._write(out, ticket)
            step = next_step(conversation, self._read(ticket))

    def _write(self, frame: bytearray, ticket: Ticket) -> None:
        assert isinstance(frame, GatheredFrame), "as the protocol was told"
        try:
            self._socket.settimeout(ticket.timeout_s)
            if self.secured:
                self._socket.sendall(b"".join(frame.pieces()))
            else:
                send_pieces(self._socket, frame.pieces())
        except TimeoutError:
            self.close()
            raise self._protocol.timed_out(ticket) from None
        except OSError as error:
            self.failure = error
            self.close()
            raise self._protocol.lost() from None

    def _read(self, ticket: Ticket) -> memoryview:
        """The next frame, which answers this request."""
        deadline = time.monotonic() + ticket.timeout_s
        try:
            while True:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                count = self._socket.recv_into(self._protocol.writable())
                if not count:
                    raise ConnectionResetError
                for _, frame in self._protocol.received(count):
                    return frame
        except TimeoutError:
            self.close()
            raise self._protocol.timed_out(ticket) from None
        except OSError as error:
            self.failure = error
            self.close()
            raise self._protocol.lost() from None
        except ProtocolError:
            # A few bytes more than a length distinguish a web server from other servers.
            self.first_bytes = self._protocol.first_bytes
            with suppress(OSError):
                self.first_bytes += self._socket.recv(_MORE_FIRST_BYTES) if self.has_input() else b""
            self.close()
            raise


def _connected(address: Address, settings: ClusterSettings) -> socket.socket:
    sock = socket.create_connection((address.host, address.port), timeout=settings.connect_timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        security = settings.security
        if security is None or security.context is None:
            return sock
        return security.context().wrap_socket(sock, server_hostname=address.host)
    except BaseException:
        sock.close()
        raise


class HasFile(Protocol):
    @property
    def buffered(self) -> bool: ...

    def fileno(self) -> int: ...


F = TypeVar("F", bound=HasFile)


def readable(waiting: Iterable[F], timeout_s: float) -> list[F]:
    """Wait for input on the connections; returns those that have some. Without connections it only pauses."""
    files = {one.fileno(): one for one in waiting}
    there = [file for file, one in files.items() if one.buffered]
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    there += [file for file, _ in poll.poll(0 if there else math.ceil(timeout_s * 1000))]
    return [files[file] for file in dict.fromkeys(there)]


def _what_answers(address: Address, first_bytes: bytes) -> Reason | None:
    """Why the connection failed. Its imports are needed only here."""
    from headrace.client.diagnosis import recognize

    return recognize(first_bytes) or _probed(address)


def _probed(address: Address) -> Reason | None:
    """Whether the server speaks HTTP or TLS; in a thread, since the caller may be running an event loop."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from headrace.client.diagnosis import probe

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(probe(address))).result()

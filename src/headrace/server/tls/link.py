"""A TLS connection under an exchange: the second kind of link, over a socket of the standard library's `ssl`.

It handshakes as bytes come, without ever waiting, then moves bytes between the socket and the exchange as
`SocketLink` does, but for what TLS does not allow: files are read and encrypted (`outgoing`), and a read gives one
record. OpenSSL takes no more of the socket than a record, so what the selector does not report is only what is
`pending` of the last one.

A transport of asyncio would do too; it keeps a quarter of a megabyte for each connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Protocol

from headrace.config.principal_rules import distinguished_name
from headrace.env import Timer
from headrace.server.exchange import OWN_BUFFER_FROM, Exchange
from headrace.server.socket_link import scratch
from headrace.server.tls.faults import handshake_problem
from headrace.server.tls.outgoing import JOINED_UP_TO, TlsOutgoing
from headrace.services.reply import Piece
from headrace.storage.files import FileRange

if TYPE_CHECKING:
    from headrace.server.connections import ConnectionSet
    from headrace.server.dispatch import Dispatcher
    from headrace.server.tls.identity import TlsContexts

RECORD_BYTES = 16 * 1024
"""The largest payload of a record, and so of a read."""
GATHERED_BYTES = OWN_BUFFER_FROM
"""Records that have arrived are handed over together, up to the size at which a frame gets a buffer of its own."""
READ_BYTES_PER_TURN = 1024 * 1024
WAITED_FOR_BYTES = 256 * 1024
"""How much of a large frame must arrive before the selector reports it: an event for every record costs more
than to decrypt it."""
WITHIN_OPENSSL_BYTES = 18 * 1024
"""How many bytes of a record OpenSSL may hold while it has read only a part of it."""
LINGER_SECONDS = 1.0
"""How long a peer has to read why its handshake failed."""
CLOSE_SECONDS = 10.0
"""How long a peer has to take the last answer."""


class Handshakes(Protocol):
    """Limits the number of handshakes."""

    def ended(self, link: TlsLink) -> None: ...


class TlsLink:
    __slots__ = (
        "_closing",
        "_contexts",
        "_dispatcher",
        "_exchange",
        "_fd",
        "_handshakes",
        "_held_back",
        "_loop",
        "_low_water",
        "_out",
        "_owner",
        "_reading",
        "_refused",
        "_timer",
        "_tls",
        "active",
    )

    def __init__(
        self, dispatcher: Dispatcher, owner: ConnectionSet, handshakes: Handshakes, contexts: TlsContexts
    ) -> None:
        self._dispatcher = dispatcher
        self._owner = owner
        self._handshakes: Handshakes | None = handshakes
        """None once the handshake is done."""
        self._contexts = contexts
        self._exchange = Exchange(dispatcher, self, owner.listener)
        self._loop = asyncio.get_running_loop()
        self.active = True
        """Set by every receive, cleared by the sweep that looks for idle connections."""
        self._tls: ssl.SSLSocket | None = None
        self._out: TlsOutgoing | None = None
        self._fd = -1
        self._reading = False
        self._low_water = 1
        self._closing = False
        self._held_back = False
        """Whether it had to wait before it could begin."""
        self._refused = False
        """Whether its handshake failed, and it has some time to read why."""
        self._timer: Timer | None = None

    @property
    def client_host(self) -> str:
        return self._exchange.client_host

    @property
    def named_by_certificate(self) -> bool:
        return self._tls is not None and self._contexts.settings.names_principals and self._has_certificate()

    def begin(self, tcp: socket.socket, host: str, handshake_seconds: float) -> bool:
        """Take an accepted socket; False if there are too many connections."""
        self._exchange.client_host = host
        if not self._owner.admit(self):
            tcp.close()
            return False
        tcp.setblocking(False)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._tls = self._contexts.server.wrap_socket(tcp, server_side=True, do_handshake_on_connect=False)
        except OSError:  # it is already closed
            tcp.close()
            self._owner.forget(self)
            return False
        self._fd = self._tls.fileno()
        self._out = TlsOutgoing(self._tls, self._dispatcher.broker.env, self._sent)
        clock = self._dispatcher.broker.env.clock
        self._timer = clock.call_later(handshake_seconds, self._too_slow)
        if not self._held_back:
            self.resume_reading()
        return True

    def hold_back(self, seconds: float) -> None:
        """Read nothing from it for that long, the handshake included: the exchange resumes the reading."""
        self._held_back = True
        self._exchange.hold_back(seconds)

    # -- the handshake

    def _too_slow(self) -> None:
        self.give_up_handshake("its TLS handshake took too long")

    def give_up_handshake(self, why: str) -> None:
        self._owner.say(logging.WARNING, "Closed the connection of %s", why, self.client_host)
        self.abort()

    def _shake_hands(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self._fd, self._shake_hands_more)
            return
        except (OSError, ValueError) as error:
            self._refuse(handshake_problem(error, self._owner.listener))
            return
        self._shaken()

    def _shake_hands_more(self) -> None:
        self._loop.remove_writer(self._fd)
        self._shake_hands()

    def _refuse(self, why: str) -> None:
        """Let the peer read why: bytes that it has sent meanwhile must not make the kernel discard the reason."""
        self._owner.say(logging.WARNING, "Closed the connection of %s", why, self.client_host)
        assert self._tls is not None
        self._refused = True
        try:
            socket.socket.shutdown(self._tls, socket.SHUT_WR)
        except OSError:
            self.abort()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._dispatcher.broker.env.clock.call_later(LINGER_SECONDS, self.abort)

    def _discard(self) -> None:
        assert self._tls is not None
        try:
            ended = not socket.socket.recv_into(self._tls, scratch)  # as it came: there is no TLS any more
        except BlockingIOError:
            return
        except OSError:
            ended = True
        if ended:
            self.abort()

    def _shaken(self) -> None:
        assert self._handshakes is not None
        self._end_handshake()
        problem = self._name_principal()
        if problem is not None:
            self.give_up_handshake(problem)
        else:
            self._receive()

    def _end_handshake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._handshakes is not None:
            self._handshakes.ended(self)
            self._handshakes = None

    def _has_certificate(self) -> bool:
        assert self._tls is not None
        return bool(self._tls.getpeercert())

    def _name_principal(self) -> str | None:
        """Set the principal from the certificate; returns what is wrong if no rule fits."""
        settings = self._contexts.settings
        if not settings.names_principals:
            return None
        assert self._tls is not None
        certificate = self._tls.getpeercert()
        if not certificate:
            return None
        name = distinguished_name(certificate["subject"])  # type: ignore[arg-type]  # tuples of tuples of pairs
        user = settings.rules.user(name)
        if not user:
            return f"no rule of ssl.principal.mapping.rules fits {name[:200]!r}"
        self._exchange.principal = f"User:{user}"
        return None

    # -- receiving

    def _readable(self) -> bool:
        """Called by the selector, or by the loop. Always handles the event."""
        if self._handshakes is None:
            self._receive()
        elif self._refused:
            self._discard()
        else:
            self._shake_hands()
        return True

    def _receive(self) -> None:
        self.active = True
        exchange = self._exchange
        left = READ_BYTES_PER_TURN
        try:
            while self._reading and left > 0:
                count, more = self._read_some()
                left -= count
                if not more:
                    break
        except (OSError, ValueError):  # the peer has closed it, properly or not
            self.abort()
            return
        target = exchange.target
        if target is not None or self._low_water != 1:
            self._let_come(len(target) if target is not None else 0)
        if exchange.ready:
            self.answer()
        if left <= 0 and self._reading and self._pending():
            self._loop.call_soon(self._receive_more)

    def _let_come(self, missing: int) -> None:
        """Set how many bytes must arrive before the selector reports the rest of a large frame."""
        least = min(missing - WITHIN_OPENSSL_BYTES, WAITED_FOR_BYTES)
        least = least if least > RECORD_BYTES else 1
        if least != self._low_water and self._tls is not None:
            self._low_water = least
            self._tls.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

    def _read_some(self) -> tuple[int, bool]:
        """Read once; returns the number of bytes, and whether there may be more."""
        exchange = self._exchange
        target = exchange.target
        if target is not None:
            count, more = self._fill(target[:READ_BYTES_PER_TURN], RECORD_BYTES)
            if count:
                exchange.filled(count)
        else:
            count, more = self._fill(scratch[:GATHERED_BYTES], 0)
            if count:
                exchange.receive(scratch[:count])
        return count, more

    def _fill(self, buffer: memoryview, missing: int) -> tuple[int, bool]:
        """Fill `buffer` with the records that have arrived; returns the bytes, and whether there may be more.

        A record that is not full usually ends a request: nothing comes after it. But if more than `missing` bytes
        are still to come, the next record has probably arrived too.
        """
        assert self._tls is not None
        tls, count, size = self._tls, 0, len(buffer)
        while count < size:
            try:
                got = tls.recv_into(buffer[count:])
            except ssl.SSLWantReadError:
                return count, False
            if not got:
                if not count:
                    raise ConnectionResetError
                break  # handled first; the next read returns the end again
            count += got
            if got != RECORD_BYTES and not (0 < missing < size - count) and not tls.pending():
                return count, False
        return count, True

    def _receive_more(self) -> None:
        if self._reading:
            self._receive()

    def _pending(self) -> bool:
        return self._tls is not None and self._tls.pending() > 0

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)
            if self._owner.direct is not None:
                self._owner.direct.forget(self._fd)

    def resume_reading(self) -> None:
        if self._reading or self._tls is None or self._closing:
            return
        self._reading = True
        self._loop.add_reader(self._fd, self._readable)
        if self._owner.direct is not None:
            self._owner.direct.read_directly(self._fd, self._readable)
        if self._pending():
            self._loop.call_soon(self._receive_more)

    # -- the end

    def close_if_idle(self) -> None:
        """Called by the sweep: twice without a byte and with nothing to answer means that it is abandoned."""
        if not self.active and self._exchange.is_idle:
            self.close()
        self.active = False

    def close(self) -> None:
        """Close after what is ready was sent, if the peer takes it in time."""
        if self._closing or self._tls is None:
            return
        if self._handshakes is not None:
            self.abort()
            return
        self._flush()
        if self._tls is None:
            return
        self.pause_reading()
        self._closing = True
        assert self._out is not None
        if self._out.busy:
            self._timer = self._dispatcher.broker.env.clock.call_later(CLOSE_SECONDS, self.abort)
        else:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        assert self._tls is not None
        try:
            self._tls.unwrap()
        except (OSError, ValueError):
            pass  # it need not answer
        self.abort()

    def abort(self) -> None:
        tls = self._tls
        if tls is None:
            return
        self._end_handshake()
        self.pause_reading()
        self._loop.remove_writer(self._fd)
        assert self._out is not None
        self._out.close()
        self._tls = self._out = None
        self._closing = True
        tls.close()
        self._fd = -1
        # Not at once: we may be called by the exchange itself.
        self._loop.call_soon(self._gone)

    def _gone(self) -> None:
        self._exchange.lost()
        self._owner.forget(self)

    # -- answering

    def answer(self) -> None:
        """Send what is ready, after other connections of this turn were read from (docs/adr/0004)."""
        direct = self._owner.direct
        if direct is None:
            self._flush()
        else:
            direct.answer(self._flush, len(self._exchange.ready))

    def _flush(self) -> None:
        exchange = self._exchange
        ready = exchange.ready
        if not ready or not exchange.writable or self._tls is None or self._out is None or self._out.busy:
            return  # nothing to send, or what was sent before is still on its way
        exchange.ready = []
        exchange.files_ready = False
        try:
            if not self._out.send(_joined(ready)):
                exchange.pause_writing()
        except (OSError, ValueError) as error:
            if isinstance(error, ConnectionError | ssl.SSLError):
                self.abort()
            else:
                exchange.fail(error)

    def _sent(self, failed: bool) -> None:
        if failed:
            self.abort()
        elif self._closing:
            self._say_goodbye()
        else:
            self._exchange.resume_writing()


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Small answers joined: each write is a record of its own."""
    if len(pieces) == 1 or any(type(piece) is FileRange for piece in pieces):
        return pieces
    if sum(map(len, pieces)) > JOINED_UP_TO:
        return pieces
    return [b"".join(pieces)]  # type: ignore[arg-type]  # all are bytes

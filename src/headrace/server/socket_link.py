"""The socket under an exchange: moves bytes between the kernel and the exchange, which knows what they mean.

With `file_sender`, the only place that touches socket descriptors. All connections of a loop share one scratch
buffer to read into. A large frame is read straight into the exchange's own buffer, greedily, some megabytes a
turn so that others get theirs. What one receive answered leaves in one write, after the other connections of the
same turn were read from. While the peer does not read, nothing more is read from it.

Files. A response may contain ranges of segment files. Small ones are read and joined, if they are in the page
cache; all others are left to the `FileSender`.

A connection with TLS is a second link over the same exchange (`tls.link`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import TYPE_CHECKING, cast

from headrace.model.buffers import Buffer
from headrace.server.exchange import Exchange
from headrace.server.file_sender import FileSender
from headrace.services.reply import Piece
from headrace.storage.files import FileRange

if TYPE_CHECKING:
    from headrace.server.connections import ConnectionSet
    from headrace.server.dispatch import Dispatcher

SCRATCH_SIZE = 256 * 1024
GREEDY_BYTES_PER_TURN = 4 * 1024 * 1024
SENDFILE_FROM = 64 * 1024
"""Below this a `pread` and a joined write are cheaper than a `sendfile` of its own."""
MAX_VECTOR = 64
"""More pieces than this are joined before they are sent. The kernel takes 1,024 at once."""

scratch = memoryview(bytearray(SCRATCH_SIZE))
"""Shared by every connection of the loop: its content is consumed before the callback returns."""
_into_scratch = (scratch,)
outbox = memoryview(bytearray(SCRATCH_SIZE))
"""Shared too: small ranges of files are read into it, and sent or copied before the callback returns."""


class SocketLink(asyncio.BufferedProtocol):
    __slots__ = ("_dispatcher", "_exchange", "_fd", "_owner", "_sender", "_transport", "active")

    def __init__(self, dispatcher: Dispatcher, owner: ConnectionSet) -> None:
        self._dispatcher = dispatcher
        self._owner = owner
        self._exchange = Exchange(dispatcher, self, owner.listener)
        self.active = True
        """Set by every receive, cleared by the sweep that looks for idle connections."""
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._sender: FileSender | None = None

    @property
    def client_host(self) -> str:
        return self._exchange.client_host

    # -- the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # tell us at once when the peer stops reading
        tcp: socket.socket = transport.get_extra_info("socket")
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fd = tcp.fileno()
        peer = transport.get_extra_info("peername")
        self._exchange.client_host = peer[0] if peer else ""
        if not self._owner.admit(self):
            transport.abort()  # type: ignore[attr-defined]  # every socket transport has it
        elif self._owner.direct is not None:
            self._owner.direct.read_directly(self._fd, self._read)

    def connection_lost(self, error: Exception | None) -> None:
        if self._owner.direct is not None:
            self._owner.direct.forget(self._fd)
        self._transport = None
        self._fd = -1
        self._exchange.lost()
        if self._sender is not None:
            self._sender.close()
        self._owner.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        target = self._exchange.target
        return scratch if target is None else target

    def buffer_updated(self, count: int) -> None:
        if self._exchange.target is None:
            self._received(count)
        else:
            self._filled(count)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._exchange.pause_writing()

    def resume_writing(self) -> None:
        self._exchange.resume_writing()

    # -- receiving

    def _read(self) -> bool:
        """Read as the transport would. False leaves it to the transport, which knows how to handle an end."""
        target = self._exchange.target
        try:
            count = os.readv(self._fd, _into_scratch if target is None else (target,))
        except OSError:
            return False
        if not count:
            return False
        if target is None:
            self._received(count)
        else:
            self._filled(count)
        return True

    def _received(self, count: int) -> None:
        """Handle `count` bytes in the scratch buffer."""
        self.active = True
        exchange = self._exchange
        exchange.receive(scratch[:count])
        if exchange.target is not None:
            self._fill()
        if exchange.ready:
            self.answer()

    def _filled(self, count: int) -> None:
        """Handle `count` bytes that arrived in the buffer of a large frame."""
        self.active = True
        self._exchange.filled(count)
        self._fill()
        if self._exchange.ready:
            self.answer()

    def _fill(self) -> None:
        """Read greedily into that buffer."""
        exchange = self._exchange
        left = GREEDY_BYTES_PER_TURN
        while exchange.target is not None and left > 0:
            try:
                count = os.readv(self._fd, (exchange.target,))
            except OSError:
                return  # nothing has arrived yet, or the transport will notice the end itself
            if count == 0:
                return
            exchange.filled(count)
            left -= count

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    # -- the end

    def close_if_idle(self) -> None:
        """Called by the sweep: twice without a byte and with nothing to answer means that it is abandoned."""
        if not self.active and self._exchange.is_idle and self._transport is not None:
            self._transport.close()
        self.active = False

    def hold_back(self, seconds: float) -> None:
        self._exchange.hold_back(seconds)

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- answering

    def answer(self) -> None:
        """Send what is ready, after other connections of this turn were read from (docs/adr/0004)."""
        direct = self._owner.direct
        if direct is None:
            self._flush()
        else:
            direct.answer(self._flush, len(self._exchange.ready))

    def _flush(self) -> None:
        """Send what is ready. A file that cannot be read ends this connection, not the turn of all others."""
        exchange = self._exchange
        ready = exchange.ready
        if not ready or not exchange.writable or self._transport is None:
            return  # nothing to send, or what was sent before is still on its way
        exchange.ready = []
        try:
            if exchange.files_ready:
                exchange.files_ready = False
                if not self._send_small_ranges(ready):
                    self._send_with_files(ready)
                return
            # Without files, all of it is bytes.
            joined: bytes = ready[0] if len(ready) == 1 else b"".join(ready)  # type: ignore[assignment, arg-type]
            # Straight to the socket: the transport would first check what we know. It takes over the rest.
            try:
                sent = os.write(self._fd, joined)
            except BlockingIOError:
                sent = 0
            if sent < len(joined):
                self._transport.write(memoryview(joined)[sent:])
        except ConnectionError:
            self._transport.abort()  # while reading is paused, nobody else would notice the end
        except Exception as error:
            exchange.fail(error)

    def _send_small_ranges(self, pieces: list[Piece]) -> bool:
        """Send all with one call; False if a range is too large or would wait for the disk."""
        filled = _with_small_ranges(pieces)
        if filled is None:
            return False
        assert self._transport is not None
        vector = filled if len(filled) <= MAX_VECTOR else [b"".join(filled)]
        try:
            sent = os.writev(self._fd, vector)
        except BlockingIOError:
            sent = 0
        if sent < sum(map(len, vector)):
            self._transport.write(memoryview(b"".join(vector))[sent:])
        return True

    def _send_with_files(self, pieces: list[Piece]) -> None:
        if self._sender is None:
            self._sender = FileSender(self._fd, self._file_sent, self._dispatcher.broker)
        self._sender.send(pieces)
        if self._sender.busy:
            self._exchange.pause_writing()

    def _file_sent(self, failed: bool) -> None:
        if failed:
            self.abort()
        else:
            self._exchange.resume_writing()


def _with_small_ranges(pieces: list[Piece]) -> list[Buffer] | None:
    """The pieces with the bytes of ranges in their place; None if one is too large or would wait for the disk.

    Those bytes are in the outbox if they fit: they must be gone before the next answer.
    """
    if len(pieces) == 3 and type(data := pieces[1]) is FileRange and (size := data[2]) < SENDFILE_FROM:
        # The usual Fetch, without the loops.
        place = outbox[:size]
        return [pieces[0], place, pieces[2]] if _read_if_cached(data, place) else None  # type: ignore[list-item]
    needed = 0
    for piece in pieces:
        if type(piece) is FileRange:
            if piece.size >= SENDFILE_FROM:
                return None
            needed += piece.size
    buffer = outbox if needed <= len(outbox) else memoryview(bytearray(needed))
    filled: list[Buffer] = []
    start = 0
    for piece in pieces:
        if type(piece) is FileRange:
            place = buffer[start : start + piece.size]
            if not _read_if_cached(piece, place):
                return None
            start += piece.size
            filled.append(place)
        else:
            filled.append(cast(bytes, piece))
    return filled


def _read_if_cached(piece: FileRange, place: memoryview) -> bool:
    """Fill `place` with the bytes of a range; False if reading them would wait for the disk."""
    file, position, size = piece
    try:
        count = os.preadv(file.fd, (place,), position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # tmpfs: never on a disk, so it can just be read
            file.failed(error)
            raise
        count = os.preadv(file.fd, (place,), position)
    return count == size

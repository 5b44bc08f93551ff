"""One client connection: frames in, responses out in order. The only place that touches socket descriptors.

Receiving. All connections of a loop share one scratch buffer; frames are handled in place, inside the callback
that delivers them. A frame that has not arrived whole moves to a buffer of its exact size, which is then filled
greedily with `readv`, some megabytes a turn so that others get theirs. An idle connection holds no buffer.

Answering. Responses leave in the order of their requests. One that is not ready yet (`Pending`) keeps its place
and the later ones wait behind it; an exclusive one (a cold handler's) also stops further requests from being
handled. What one receive produced leaves in one write, after the other connections of the same turn were read
from. While the peer does not read, nothing more is read from it.

Files. A response may contain ranges of segment files. Small ones are read and joined, if they are in the page
cache; all others are left to the `FileSender`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import mmap
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, cast

from headrace.handlers.context import ANONYMOUS
from headrace.handlers.reply import CloseConnection, Piece
from headrace.model.errors import ProtocolError
from headrace.model.limits import MAX_PENDING_RESPONSES
from headrace.server.file_sender import FileSender
from headrace.server.framing import Answered, FramedPending
from headrace.storage.files import FileRange

if TYPE_CHECKING:
    from headrace.handlers.broker import Broker
    from headrace.server.connections import ConnectionSet
    from headrace.server.dispatch import Dispatcher

log = logging.getLogger(__name__)

SCRATCH_SIZE = 256 * 1024
GREEDY_BYTES_PER_TURN = 4 * 1024 * 1024
UNTOUCHED_FROM = 4 * 1024 * 1024
"""Frames above this are held in memory that the kernel gives page by page, as they arrive."""
SENDFILE_FROM = 64 * 1024
"""Below this a `pread` and a joined write are cheaper than a `sendfile` of its own."""
MAX_VECTOR = 64
"""More pieces than this are joined before they are sent. The kernel takes 1,024 at once."""
Buffer = bytes | bytearray | memoryview
_LENGTH = struct.Struct(">i")

scratch = memoryview(bytearray(SCRATCH_SIZE))
"""Shared by every connection of the loop: its content is used up before the callback returns."""
outbox = memoryview(bytearray(SCRATCH_SIZE))
"""Shared too: small ranges of files are read into it, and sent or copied before the callback returns."""


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_dispatcher",
        "_exclusive",
        "_fd",
        "_files_ready",
        "_held",
        "_order",
        "_owner",
        "_partial",
        "_ready",
        "_received",
        "_sender",
        "_stash",
        "_transport",
        "_writable",
        "active",
        "broker",
        "client_host",
        "listener",
        "principal",
    )

    def __init__(self, dispatcher: Dispatcher, owner: ConnectionSet) -> None:
        self._dispatcher = dispatcher
        self._owner = owner
        self.broker: Broker = dispatcher.broker
        self.listener = owner.listener
        self.principal = ANONYMOUS
        self.client_host = ""
        self.active = True
        """Set by every receive, cleared by the sweep that looks for idle connections."""
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._partial: memoryview | None = None
        """A frame that is not whole yet, length included, and how much of it is there."""
        self._received = 0
        self._held = 0
        """What the frame that is not whole yet counts for in the memory of all requests."""
        self._stash: bytearray | None = None
        """Received but not to be handled yet: an exclusive request runs or too many responses wait."""
        self._exclusive: FramedPending | None = None
        self._order: deque[FramedPending | Answered] | None = None
        """Responses that wait for one before them, in order; absent when none does."""
        self._ready: list[Piece] = []
        """What this turn answers."""
        self._files_ready = False
        """Whether there may be ranges of files in it."""
        self._writable = True
        self._sender: FileSender | None = None

    # -- the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # tell us at once when the peer stops reading
        tcp: socket.socket = transport.get_extra_info("socket")
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fd = tcp.fileno()
        peer = transport.get_extra_info("peername")
        self.client_host = peer[0] if peer else ""
        if not self._owner.admit(self):
            transport.abort()  # type: ignore[attr-defined]  # every socket transport has it
        elif self._owner.direct is not None:
            self._owner.direct.read_directly(self._fd, self._read)

    def connection_lost(self, error: Exception | None) -> None:
        if self._owner.direct is not None:
            self._owner.direct.forget(self._fd)
        self._transport = None
        self._fd = -1
        self._partial = self._stash = None
        self._dispatcher.memory.forget(self)
        self._release()
        for waiting in self._order or ():
            waiting.cancel()
        self._order = None
        if self._sender is not None:
            self._sender.close()
        self._owner.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return scratch if self._partial is None else self._partial[self._received :]

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = False
        self._pause_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self._flush()
        self._resume()

    def buffer_updated(self, count: int) -> None:
        self.active = True
        try:
            if self._partial is None:
                self._handle_frames(scratch[:count])
            else:
                self._received += count
                self._fill_partial()
        except Exception as error:
            self._hang_up(error)
        self._answer()

    # -- receiving

    def _read(self) -> bool:
        """What the transport would do; False leaves it to the transport, which knows what an end means."""
        try:
            count = os.readv(self._fd, (self.get_buffer(-1),))
        except OSError:
            return False
        if count:
            self.buffer_updated(count)
        return count > 0

    def _handle_frames(self, data: memoryview) -> None:
        position = 0
        size = len(data)
        dispatch = self._dispatcher.dispatch
        most = self._dispatcher.max_request_bytes
        while size - position >= 4:
            if self._order is not None and self._must_wait():
                self._stash = bytearray(data[position:])
                self._pause_reading()
                return
            (length,) = _LENGTH.unpack_from(data, position)
            if not 0 < length <= most:
                raise _bad_length(length, most)
            end = position + 4 + length
            if end > size:
                break
            reply = dispatch(self, data[position + 4 : end])
            position = end
            if reply is None:
                continue
            if self._order is None and type(reply) is bytes:
                self._ready.append(reply)
            else:
                self._take_turn(reply)
        if position < size:
            self._begin_partial(data[position:])

    def _must_wait(self) -> bool:
        """Whether the next request may not be handled yet."""
        return self._exclusive is not None or len(self._order or ()) >= MAX_PENDING_RESPONSES

    def _begin_partial(self, rest: memoryview) -> None:
        needed = 4
        if len(rest) >= 4:
            (length,) = _LENGTH.unpack_from(rest)
            if not 0 < length <= self._dispatcher.max_request_bytes:
                raise _bad_length(length, self._dispatcher.max_request_bytes)
            needed += length
        if needed > SCRATCH_SIZE:
            if not self._dispatcher.memory.take(self, needed, self._resume):
                self._stash = bytearray(rest)
                self._pause_reading()
                return
            self._held = needed
        # A bytearray is filled with zeros at once: a few bytes must not make us touch a hundred megabytes.
        self._partial = memoryview(bytearray(needed) if needed <= UNTOUCHED_FROM else mmap.mmap(-1, needed))
        self._partial[: len(rest)] = rest
        self._received = len(rest)
        if needed > SCRATCH_SIZE:
            self._fill_partial()

    def _fill_partial(self) -> None:
        partial = self._partial
        assert partial is not None
        if self._received == 4 == len(partial):
            self._partial = None
            self._begin_partial(partial)
            if self._partial is None:
                return  # it was whole at once, or there is no room for it yet
            partial = self._partial
        turn_end = self._received + GREEDY_BYTES_PER_TURN
        needed = len(partial)
        while self._received < needed and self._received < turn_end:
            try:
                count = os.readv(self._fd, [partial[self._received :]])
            except (BlockingIOError, ConnectionError):
                return  # nothing there yet, or the transport will notice the end itself
            if count == 0:
                return
            self._received += count
        if self._received == needed:
            self._partial = None
            try:
                self._handle_frames(partial)
            finally:
                self._release()

    def _release(self) -> None:
        if self._held:
            held, self._held = self._held, 0
            self._dispatcher.memory.give_back(held)

    def _pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Go on with what was put aside, then with reading, if nothing stands against it any more."""
        if self._transport is None or not self._writable or self._exclusive is not None:
            return
        if self._stash is not None:
            data, self._stash = self._stash, None
            try:
                self._handle_frames(memoryview(data))
            except Exception as error:
                self._hang_up(error)
            self._flush()
        if self._stash is None and self._exclusive is None and self._writable and self._transport is not None:
            self._transport.resume_reading()

    def close_if_idle(self) -> None:
        """Called by the sweep: twice without a byte and with nothing to answer means it is abandoned."""
        if not self.active and not self._order and self._transport is not None:
            self._transport.close()
        self.active = False

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _hang_up(self, error: Exception) -> None:
        """The end of a connection whose bytes make no sense, or on which our own code failed."""
        if isinstance(error, (ProtocolError, CloseConnection)):
            log.info("Closing the connection of %s: %s", self.client_host, error)
        else:
            log.error("Closing the connection of %s after a fault of ours", self.client_host, exc_info=error)
        if self._transport is not None:
            self._flush()
            self._transport.close()

    # -- answering

    def _take_turn(self, reply: bytes | list[Piece] | FramedPending) -> None:
        """Keep the order: behind those that wait, if any do."""
        if isinstance(reply, FramedPending):
            self._wait_for(reply)
            return
        pieces: list[Piece] = reply if isinstance(reply, list) else [reply]
        if self._order is not None:
            self._order.append(Answered(pieces))
        else:
            self._ready += pieces
            self._files_ready = True

    def _wait_for(self, waiting: FramedPending) -> None:
        if waiting.exclusive:
            self._exclusive = waiting
        if self._order is None:
            self._order = deque()
        self._order.append(waiting)
        waiting.pending.when_done(self._deliver)

    def _deliver(self) -> None:
        """A response that was waited for has come: send all that are now in front."""
        order = self._order
        if order is None or self._transport is None:
            return
        try:
            while order and order[0].done:
                pieces = order.popleft().framed()
                self._ready += pieces
                if len(pieces) > 1:
                    self._files_ready = True
        except CloseConnection as error:
            self._hang_up(error)
        if not order:
            self._order = None
        if self._exclusive is not None and self._exclusive.done:
            self._exclusive = None
        self._answer()
        self._resume()

    def _answer(self) -> None:
        """Send what is ready, after other connections of this turn were read from (docs/adr/0004)."""
        if self._ready:
            if self._owner.direct is None:
                self._flush()
            else:
                self._owner.direct.answer(self._flush, len(self._ready))

    def _flush(self) -> None:
        """A file that cannot be read ends this connection, not the turn of all others."""
        try:
            self._send_ready()
        except Exception as error:
            self._hang_up(error)

    def _send_ready(self) -> None:
        """Send what is ready, if nothing sent before is still on its way."""
        if not self._ready or not self._writable or self._transport is None:
            return
        if self._sender is not None and self._sender.busy:
            return
        ready, self._ready = self._ready, []
        if self._files_ready:
            self._files_ready = False
            if not self._send_small_ranges(ready):
                self._send_with_files(ready)
            return
        joined = b"".join(cast(list[bytes], ready)) if len(ready) > 1 else cast(bytes, ready[0])
        # Straight to the socket: the transport would only check first what we know. It takes over what is left.
        try:
            sent = os.write(self._fd, joined)
        except BlockingIOError:
            sent = 0
        except ConnectionError:
            return  # the transport will notice the end itself
        if sent < len(joined):
            self._transport.write(memoryview(joined)[sent:])

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
        except ConnectionError:
            return True
        if sent < sum(map(len, vector)):
            self._transport.write(memoryview(b"".join(vector))[sent:])
        return True

    def _send_with_files(self, pieces: list[Piece]) -> None:
        if self._sender is None:
            self._sender = FileSender(self._fd, self._file_sent, self._dispatcher.broker)
        self._sender.send(pieces)
        if self._sender.busy:
            self._pause_reading()

    def _file_sent(self, failed: bool) -> None:
        if failed and self._transport is not None:
            self._transport.abort()
            return
        self._flush()
        self._resume()


def _bad_length(length: int, most: int) -> ProtocolError:
    return ProtocolError(f"a frame of {length} bytes; the limit is {most}")


def _with_small_ranges(pieces: list[Piece]) -> list[Buffer] | None:
    """The pieces with the bytes of ranges in their place; None if one is too large or would wait for the disk.

    Those bytes are in the outbox if they fit: they must be gone before the next answer.
    """
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
    try:
        count = os.preadv(piece.file.fd, (place,), piece.position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # tmpfs: never on a disk, so it can just be read
            raise
        count = os.preadv(piece.file.fd, (place,), piece.position)
    return count == piece.size

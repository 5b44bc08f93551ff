"""One client's exchange: frames in, responses out in order, within limits. No I/O: a link below moves the bytes.

Receiving. The link hands over what arrived; whole frames are handled in place. The beginning of a frame is kept,
and grows as bytes arrive, so that what a client holds of our memory is what it sent. A large frame, once a good
part of it is there, gets a buffer of its exact size, which the link fills directly (`target`). An idle exchange
holds nothing.

Answering. Responses leave in the order of their requests. One that is not ready yet (`Pending`) keeps its place
and the later ones wait behind it; an exclusive one (a cold handler's) also stops further requests from being
handled. What one receive produced is handed to the link together.

Limits. One receive takes so much of the loop's time and makes so many bytes of answers; then the rest is put aside
and continues after others were served (`turns`). What waits in order is bounded in number and bytes; what is put
aside or incomplete is counted (`request_memory`). While the peer does not read, none of its requests are handled;
nor while it is held back (`hold_back`), by a quota.
"""

from __future__ import annotations

import logging
import mmap
import struct
from collections import deque
from typing import TYPE_CHECKING, Protocol

from headrace.handlers.context import ANONYMOUS, SaslConversation
from headrace.model.errors import ProtocolError
from headrace.model.limits import MAX_PENDING_RESPONSES
from headrace.server.framing import Answered, FramedPending, bytes_of
from headrace.services.reply import CloseConnection, Piece

if TYPE_CHECKING:
    from headrace.handlers.broker import Broker
    from headrace.server.dispatch import Dispatcher

GROWN_UP_TO = 256 * 1024
"""Frames up to this size are kept in a buffer that grows; longer ones get one of their own size."""
OWN_BUFFER_FROM = 64 * 1024
"""How much of a long frame must have arrived before it gets that buffer."""
UNTOUCHED_FROM = 4 * 1024 * 1024
"""Frames above this are held in memory that the kernel gives page by page, as they arrive."""
ANSWER_BYTES = 1024 * 1024
"""The answers that one receive may make before they are sent, without ranges of files, which take no memory."""
WAITING_BYTES = 1024 * 1024
"""Requests and answers that may wait in order before no further request is handled."""
_LENGTH = struct.Struct(">i")
_TLS_HANDSHAKE = 0x1603
"""The first bytes of a client that speaks TLS; as a length they are above every limit."""


class Link(Protocol):
    """What moves the bytes: a socket, or TLS over one."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def answer(self) -> None:
        """Send the content of `ready` and empty it, as soon as everything before is sent."""
        ...

    def close(self) -> None:
        """Send what is ready, then close."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class _NoLink:
    """Stands for a link that was lost."""

    def _ignore(self) -> None: ...

    pause_reading = resume_reading = answer = close = abort = _ignore


class Exchange:
    __slots__ = (
        "__weakref__",
        "_answer_bytes",
        "_dispatcher",
        "_exclusive",
        "_held_until",
        "_in_line",
        "_link",
        "_needed",
        "_order",
        "_order_bytes",
        "_own",
        "_partial",
        "_paused",
        "_stash",
        "broker",
        "client_host",
        "closed",
        "files_ready",
        "listener",
        "login",
        "max_request_bytes",
        "principal",
        "ready",
        "target",
        "view",
        "writable",
    )

    def __init__(self, dispatcher: Dispatcher, link: Link, listener: str) -> None:
        self._dispatcher = dispatcher
        self._link = link
        self.broker: Broker = dispatcher.broker
        self.listener = listener
        self.max_request_bytes = dispatcher.unproven_bytes.get(listener, dispatcher.max_request_bytes)
        """The limit of a request. It is lower before a login: an unknown client must not take much memory."""
        self.principal = ANONYMOUS
        self.login: SaslConversation | None = None
        """The login of the client, on a listener with SASL."""
        self.view: object | None = None
        """The gate's record of what this principal may do."""
        self.client_host = ""
        self.closed = False
        self.writable = True
        """Whether the peer takes what is sent. Set by the link."""
        self.target: memoryview | None = None
        """Where the link should put the next bytes, if not into a buffer of its own."""
        self.ready: list[Piece] = []
        """The pieces that the link should send."""
        self.files_ready = False
        """Whether `ready` may contain ranges of files."""
        self._partial: bytearray | None = None
        """The beginning of a frame, length included."""
        self._needed = 4
        """The length of that frame, as far as it is known."""
        self._own: memoryview | None = None
        """The frame of which `target` is the rest."""
        self._stash: memoryview | None = None
        """Bytes that were received and must not be handled yet."""
        self._exclusive: FramedPending | None = None
        self._order: deque[FramedPending | Answered] | None = None
        """Responses that wait for an earlier one, in order; None if there are none."""
        self._order_bytes = 0
        self._in_line = False
        """Whether our share of this turn is used up and we wait for the next one."""
        self._held_until = 0.0
        """The end of a hold-back, by the monotonic clock; 0 if there is none."""
        self._answer_bytes = ANSWER_BYTES
        """The limit of answers for one receive; 0 while held back, so that requests received meanwhile wait."""
        self._paused = False
        """Whether the link was told to stop reading."""

    # -- what the link calls

    def receive(self, data: memoryview) -> None:
        """Handle bytes that arrived, in a buffer that is reused when this returns."""
        try:
            if self._partial is None:
                self._handle(data)
            else:
                self._complete(self._partial, data)
        except Exception as error:
            self.fail(error)

    def filled(self, count: int) -> None:
        """`count` bytes arrived in `target`."""
        assert self.target is not None
        try:
            if count < len(self.target):
                self.target = self.target[count:]
                self._dispatcher.memory.progress(self)
                return
            frame = self._own
            assert frame is not None
            self._own = self.target = None
            self._handle(frame)
        except Exception as error:
            self.fail(error)
        self._count()

    def pause_writing(self) -> None:
        self.writable = False
        self._pause_reading()

    def resume_writing(self) -> None:
        self.writable = True
        self._link.answer()
        self.resume()

    def lost(self) -> None:
        """The link is lost."""
        self._end()
        self._link = _NoLink()
        self.login = self.view = None
        for waiting in self._order or ():
            waiting.cancel()
        self._order = None
        self.ready = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being handled or waited for."""
        return not self._order and not self._in_line and not self._held_until

    def prove(self, principal: str) -> None:
        """The client has proved who it is."""
        self.principal = principal
        self.view = None
        self.max_request_bytes = self._dispatcher.max_request_bytes

    # -- receiving

    def _handle(self, data: memoryview) -> None:
        position = made = 0
        size = len(data)
        dispatcher = self._dispatcher
        dispatcher.now = dispatcher.monotonic()
        share_ends = dispatcher.now + dispatcher.slice_seconds
        while size - position >= 4:
            if self._order is not None and self._must_wait():
                self._put_aside(data[position:])
                return
            (length,) = _LENGTH.unpack_from(data, position)
            if not 0 < length <= self.max_request_bytes:
                raise _bad_length(length, self.max_request_bytes)
            end = position + 4 + length
            if end > size:
                break
            reply = dispatcher.dispatch(self, data[position + 4 : end])
            if type(reply) is bytes and self._order is None:
                self.ready.append(reply)
                made += len(reply)
            elif isinstance(reply, FramedPending):
                reply.weight = length
                reply.since = dispatcher.now
                self._wait_for(reply)
            elif reply is not None:
                self._take_place(reply)
                made += bytes_of(reply)
            if end == size:
                return
            position = end
            if dispatcher.now > share_ends or made > self._answer_bytes:
                self._put_aside(data[position:])
                self._stand_in_line()
                return
        if position < size:
            self._begin_partial(data[position:])

    def _must_wait(self) -> bool:
        """Whether the next request may not be handled yet."""
        return (
            self._exclusive is not None
            or len(self._order or ()) >= MAX_PENDING_RESPONSES
            or self._order_bytes > WAITING_BYTES
        )

    def _put_aside(self, rest: memoryview) -> None:
        # What was put aside before is not copied again.
        self._stash = rest if type(rest.obj) is bytes else memoryview(bytes(rest))
        self._count()
        self._pause_reading()

    def _pause_reading(self) -> None:
        self._paused = True
        self._link.pause_reading()

    def _stand_in_line(self) -> None:
        self._in_line = True
        self._dispatcher.turns.join(self._go_on)

    def _go_on(self) -> None:
        self._in_line = False
        self.resume()

    def hold_back(self, seconds: float) -> None:
        """Handle no more of this client's requests for that long; existing answers are still sent."""
        clock = self.broker.env.clock
        until = clock.monotonic() + seconds
        if not self._held_until:
            self._answer_bytes = -1
            self._pause_reading()
            clock.call_later(seconds, self._look_at_time)
        self._held_until = max(self._held_until, until)

    def _look_at_time(self) -> None:
        clock = self.broker.env.clock
        left = self._held_until - clock.monotonic()
        if left > 0:
            clock.call_later(left, self._look_at_time)
        elif self._held_until:
            self.let_go()

    def let_go(self) -> None:
        """End the hold-back."""
        if self._held_until:
            self._held_until = 0.0
            self._answer_bytes = ANSWER_BYTES
            self.resume()

    def _begin_partial(self, rest: memoryview) -> None:
        self._needed = 4
        self._look_at_length(rest)
        if not self._has_own_buffer(rest):
            self._partial = bytearray(rest)
            self._count()

    def _look_at_length(self, partial: bytearray | memoryview) -> None:
        if self._needed == 4 <= len(partial):
            (length,) = _LENGTH.unpack_from(partial)
            if not 0 < length <= self.max_request_bytes:
                raise _bad_length(length, self.max_request_bytes)
            self._needed = 4 + length

    def _complete(self, partial: bytearray, data: memoryview) -> None:
        """Complete a partial frame and handle it, then the rest."""
        if self._needed == 4:
            missing = 4 - len(partial)
            partial += data[:missing]
            data = data[missing:]
            self._look_at_length(partial)
        missing = self._needed - len(partial)
        if len(data) < missing or self._needed == 4:
            partial += data
            self._keep_partial(partial)
            return
        partial += data[:missing]
        self._partial = None
        self._handle(memoryview(partial))
        rest = data[missing:]
        if self._stash is not None:
            self._stash = memoryview(bytes(self._stash) + rest)
            self._count()
        elif rest and self._held_until:
            self._put_aside(rest)
        elif rest:
            self._handle(rest)
        self._count()

    def _keep_partial(self, partial: bytearray) -> None:
        self._count()
        if not self.closed and self._has_own_buffer(partial):
            self._partial = None

    def _has_own_buffer(self, beginning: bytearray | memoryview) -> bool:
        """Whether the frame with this beginning was given a buffer of its size."""
        needed = self._needed
        if needed <= GROWN_UP_TO or len(beginning) < OWN_BUFFER_FROM:
            return False
        if not self._dispatcher.memory.reserve(self, needed, self.resume):
            self._pause_reading()
            return False
        # A bytearray is filled with zeros at once: a few bytes must not make us touch a hundred megabytes.
        self._own = memoryview(bytearray(needed) if needed <= UNTOUCHED_FROM else mmap.mmap(-1, needed))
        self._own[: len(beginning)] = beginning
        self.target = self._own[len(beginning) :]
        return True

    def _count(self) -> None:
        """Report how much is held, except while a large frame has its own buffer: that was counted as a whole when
        it was reserved."""
        if self._own is None:
            held = len(self._partial or ()) + len(self._stash or ())
            self._dispatcher.memory.hold(self, held)

    def resume(self) -> None:
        """Continue with bytes that were put aside, then with reading, unless something prevents it."""
        if self.closed or not self.writable or self._exclusive is not None or self._in_line or self._held_until:
            return
        if self._stash is not None:
            data, self._stash = self._stash, None
            try:
                self._handle(data)
            except Exception as error:
                self.fail(error)
            self._count()
            self._link.answer()
        elif self._partial is not None:
            self._keep_partial(self._partial)
        if self._stash is None and self._exclusive is None and self.writable and not self._held_until:
            partial = self._partial
            if partial is None or len(partial) < OWN_BUFFER_FROM or self._needed <= GROWN_UP_TO:
                self._paused = False
                self._link.resume_reading()  # else it waits for memory

    # -- the end

    def fail(self, error: Exception) -> None:
        """End an exchange whose bytes make no sense, or on which our own code failed."""
        lines = self._dispatcher.lines
        if isinstance(error, (ProtocolError, CloseConnection)):
            lines.say(logging.INFO, "Closed the connection of %s", str(error), self.client_host)
        else:
            why = f"internal error ({type(error).__name__}: {error})"
            lines.say(logging.ERROR, "Closed the connection of %s", why, self.client_host, error)
        self._end()
        self._link.close()

    def hang_up(self) -> None:
        """Close the connection after the answers that are ready."""
        if not self.closed:
            self._end()
            self._link.close()

    def give_up(self, reason: str) -> None:
        """Close the connection at once, because others need its memory."""
        self._dispatcher.lines.say(logging.WARNING, "Closed the connection of %s", reason, self.client_host)
        self._end()
        self._link.abort()

    def _end(self) -> None:
        self.closed = True
        self._partial = self._stash = self._own = self.target = None
        self._dispatcher.memory.forget(self)

    # -- answering

    def _take_place(self, reply: bytes | list[Piece]) -> None:
        """Keep the order: put a reply behind those that wait, if there are any."""
        pieces: list[Piece] = reply if isinstance(reply, list) else [reply]
        if self._order is not None:
            waiting = Answered(pieces)
            self._order.append(waiting)
            self._order_bytes += waiting.weight
        else:
            self.ready += pieces
            self.files_ready = True

    def _wait_for(self, waiting: FramedPending) -> None:
        if waiting.exclusive:
            self._exclusive = waiting
        if self._order is None:
            self._order = deque()
            self._order_bytes = 0
        self._order.append(waiting)
        self._order_bytes += waiting.weight
        waiting.pending.when_done(self._deliver)

    def _deliver(self) -> None:
        """Called when a response has become ready: send all responses that are now in front."""
        order = self._order
        if order is None or self.closed:
            return
        now = self._dispatcher.monotonic()
        try:
            while order:
                waiting = order[0]
                if not waiting.done:
                    break
                del order[0]
                self._order_bytes -= waiting.weight
                pieces = waiting.framed(now)
                self.ready += pieces
                if len(pieces) > 1:
                    self.files_ready = True
        except Exception as error:
            waiting.cancel()
            self.fail(error)
            return
        if not order:
            self._order = None
        if self._exclusive is not None and self._exclusive.done:
            self._exclusive = None
        self._link.answer()
        if self._paused:
            self.resume()


def _bad_length(length: int, most: int) -> ProtocolError:
    if length >> 16 == _TLS_HANDSHAKE:
        return ProtocolError("it uses TLS, but this listener does not")
    return ProtocolError(f"a frame of {length} bytes; the limit is {most}")

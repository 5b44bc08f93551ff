"""Sends ranges of segment files over a connection without copying them and without waiting for the disk.

`sendfile` goes over a duplicate of the socket's descriptor, since the transport owns the original. A range that
is not in the page cache is first read by a thread, so that a cold disk never stops the loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from headrace.services.reply import Piece
from headrace.storage.files import FileRange

if TYPE_CHECKING:
    from headrace.handlers.broker import Broker

log = logging.getLogger(__name__)

SEND_BYTES_PER_TURN = 4 * 1024 * 1024
OF_THE_DISK = frozenset({errno.EIO, errno.EUCLEAN, errno.ESTALE, errno.ENODEV, errno.ENXIO})
"""Errors of a call that reads a file and sends it which can only come from the file: no socket has them."""
_probe = (bytearray(1),)


def _is_cached(piece: FileRange) -> bool:
    """Whether the last byte can be read without waiting: usually everything before it was read earlier.

    The first byte proves nothing: the search for the batch has just read its header.
    """
    try:
        os.preadv(piece.file.fd, _probe, piece.position + piece.size - 1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    return True


def warm(piece: FileRange) -> None:
    """Read a range into the page cache (in a thread)."""
    position, end = piece.position, piece.position + piece.size
    buffer = bytearray(min(piece.size, 1024 * 1024))
    while position < end:
        count = os.preadv(piece.file.fd, [buffer], position)
        if count == 0:
            return
        position += count


class FileSender:
    """Sends bytes and ranges of files over a socket that a transport owns, in order, without blocking."""

    __slots__ = ("_broker", "_done", "_front_is_cached", "_pieces", "_socket", "_watching", "busy")

    def __init__(self, fd: int, done: Callable[[bool], None], broker: Broker) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))
        self._done = done
        self._broker = broker
        self._pieces: deque[Piece] = deque()
        self._watching = False
        self._front_is_cached = False
        """Whether the first piece was found in the page cache, or has been read into it."""
        self.busy = False

    def send(self, pieces: list[Piece]) -> None:
        assert not self.busy
        self.busy = True
        self._pieces.extend(pieces)
        self._pump(resumed=False)

    def close(self) -> None:
        self._stop_watching()
        self._pieces.clear()
        self._done = _nobody_waits
        self._socket.close()

    def _pump(self, resumed: bool = True) -> None:
        try:
            finished = self._send_some()
        except OSError as error:
            if not isinstance(error, ConnectionError):
                log.warning("Sending to a client failed: %s", error)
            if error.errno in OF_THE_DISK and type(self._pieces[0]) is FileRange:
                self._pieces[0].file.failed(error)
            self._finish(resumed=True, failed=True)
            return
        if finished:
            self._finish(resumed, failed=False)

    def _finish(self, resumed: bool, failed: bool) -> None:
        self._stop_watching()
        self._pieces.clear()
        self.busy = False
        if resumed:
            self._done(failed)

    def _send_some(self) -> bool:
        """Send as much as possible; returns whether all was sent. If not, a callback that continues is set."""
        left_this_turn = SEND_BYTES_PER_TURN
        pieces = self._pieces
        while pieces:
            piece = pieces[0]
            try:
                if type(piece) is FileRange:
                    if not self._front_is_cached and not _is_cached(piece):
                        self._warm_then_pump(piece)
                        return False
                    self._front_is_cached = True
                    sent = os.sendfile(self._socket.fileno(), piece.file.fd, piece.position, piece.size)
                    if sent == 0:
                        raise ConnectionError("a segment file is shorter than its log")
                    size = piece.size
                else:
                    # Not MSG_MORE: bytes joined with pages of a file make the pages cost up to a third more.
                    sent, size = self._socket.send(cast(bytes, piece)), len(piece)
            except BlockingIOError:
                self._watch()
                return False
            if sent == size:
                pieces.popleft()
                self._front_is_cached = False
            elif type(piece) is FileRange:
                pieces[0] = FileRange(piece.file, piece.position + sent, size - sent)
            else:
                pieces[0] = cast(bytes, piece)[sent:]
            left_this_turn -= sent
            if left_this_turn <= 0 and pieces:
                self._watch()  # writable or not, other connections come first
                return False
        return True

    def _warm_then_pump(self, piece: FileRange) -> None:
        self._stop_watching()
        reading = self._broker.env.start_blocking(lambda: warm(piece))
        reading.add_done_callback(lambda reading: self._warmed(piece, reading))

    def _warmed(self, piece: FileRange, reading: asyncio.Future[None]) -> None:
        error = reading.exception()
        if error is not None:
            log.error("Reading a segment file failed: %s", error)
            if isinstance(error, OSError):
                piece.file.failed(error)
            self._finish(resumed=True, failed=True)
        elif self._pieces:
            self._front_is_cached = True
            self._pump()

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self._pump)

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching = False
            asyncio.get_running_loop().remove_writer(self._socket.fileno())


def _nobody_waits(failed: bool) -> None:
    """Called instead of a waiter when the connection is closed."""

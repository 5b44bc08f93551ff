"""What a TLS link still has to send: bytes and ranges of files, in order, in pieces of a few TLS records.

A write that the socket does not take whole must be repeated with the same bytes: such a piece is kept. All else
passes through one buffer that the connections of a loop share. A range that is not in the page cache is first
read by a thread, so that a cold disk never stops the loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from headrace.model.buffers import Buffer
from headrace.server.file_sender import OF_THE_DISK, warm
from headrace.services.reply import Piece
from headrace.storage.files import FileRange

if TYPE_CHECKING:
    from headrace.env import Env

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 * 1024
"""Encrypted and sent with one call: four records. A slow reader holds so much of our memory."""
SEND_BYTES_PER_TURN = 1024 * 1024
JOINED_UP_TO = 16 * 1024
"""Small answers are joined into one record."""

_outbox = memoryview(bytearray(CHUNK_BYTES))


class TlsOutgoing:
    """Calls `done(failed)` when all is sent that `send` could not send at once."""

    __slots__ = ("_chunk", "_done", "_env", "_pieces", "_tls", "_warm", "_watching", "busy")

    def __init__(self, tls: ssl.SSLSocket, env: Env, done: Callable[[bool], None]) -> None:
        self._tls = tls
        self._env = env
        self._done = done
        self._pieces: deque[Piece] = deque()
        self._chunk: Buffer | None = None
        """What a write was tried with, and must be tried with again."""
        self._warm = False
        """Whether the first piece has been brought into the page cache."""
        self._watching = False
        self.busy = False

    def send(self, pieces: list[Piece]) -> bool:
        """Whether all is sent. A socket that fails is an `OSError`, and so is a file."""
        assert not self.busy
        self._pieces.extend(pieces)
        self.busy = not self._send_some()
        return not self.busy

    def pump(self) -> None:
        """The socket may take more, or the file is there."""
        if not self.busy:
            self._stop_watching()
            return
        try:
            self.busy = not self._send_some()
        except OSError as error:
            if not isinstance(error, ConnectionError | ssl.SSLError):
                log.warning("Sending to a client failed: %s", error)
            self.close()
            self._done(True)
            return
        if not self.busy:
            self._stop_watching()
            self._done(False)

    def close(self) -> None:
        self._stop_watching()
        self._pieces.clear()
        self._chunk = None
        self.busy = False

    def _send_some(self) -> bool:
        left = SEND_BYTES_PER_TURN
        while True:
            chunk = self._chunk
            if chunk is None:
                if not self._pieces:
                    return True
                chunk = self._next_chunk()
                if chunk is None:
                    return False  # a thread reads it
            try:
                self._tls.send(chunk)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._chunk = chunk if type(chunk) is bytes else bytes(chunk)
                self._watch()
                return False
            self._chunk = None
            left -= len(chunk)
            if left <= 0 and self._pieces:
                self._watch()  # writable or not, others come first
                return False

    def _next_chunk(self) -> Buffer | None:
        """The next bytes to send; None if they must be waited for."""
        pieces = self._pieces
        front = pieces[0]
        if type(front) is not FileRange and (len(pieces) == 1 or len(front) >= CHUNK_BYTES):
            data = cast(bytes, pieces.popleft())
            if len(data) > CHUNK_BYTES:
                pieces.appendleft(data[CHUNK_BYTES:])
                return data[:CHUNK_BYTES]
            return data
        filled = 0
        while pieces and filled < CHUNK_BYTES:
            piece = pieces[0]
            if type(piece) is FileRange:
                count = self._read(piece, _outbox[filled : filled + piece.size])
                if not count:
                    break
            else:
                part = cast(bytes, piece)[: CHUNK_BYTES - filled]
                count = len(part)
                _outbox[filled : filled + count] = part
            filled += count
            self._consume(piece, count)
        if filled:
            return _outbox[:filled]
        self._warm_then_pump(cast(FileRange, pieces[0]))
        return None

    def _consume(self, piece: Piece, count: int) -> None:
        if count == (piece.size if type(piece) is FileRange else len(piece)):
            self._pieces.popleft()
            self._warm = False
        elif type(piece) is FileRange:
            self._pieces[0] = FileRange(piece.file, piece.position + count, piece.size - count)
        else:
            self._pieces[0] = cast(bytes, piece)[count:]

    def _read(self, piece: FileRange, place: memoryview) -> int:
        """How much of it could be read without waiting for the disk."""
        try:
            if self._warm:
                return _some(os.preadv(piece.file.fd, (place,), piece.position))
            return read_cached(piece, place)
        except OSError as error:
            if error.errno in OF_THE_DISK:
                piece.file.failed(error)
            raise

    def _warm_then_pump(self, piece: FileRange) -> None:
        self._stop_watching()
        reading = self._env.start_blocking(lambda: warm(piece))
        reading.add_done_callback(lambda reading: self._warmed(piece, reading))

    def _warmed(self, piece: FileRange, reading: asyncio.Future[None]) -> None:
        error = reading.exception()
        if not self.busy:
            return
        if error is None:
            self._warm = True
            self.pump()
            return
        log.error("Reading a segment file failed: %s", error)
        if isinstance(error, OSError):
            piece.file.failed(error)
        self.close()
        self._done(True)

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            asyncio.get_running_loop().add_writer(self._tls.fileno(), self.pump)

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching = False
            asyncio.get_running_loop().remove_writer(self._tls.fileno())


def read_cached(piece: FileRange, place: memoryview) -> int:
    """How much of it is in the page cache, and in `place` now; 0 if it would have to be waited for."""
    try:
        return _some(os.preadv(piece.file.fd, (place,), piece.position, os.RWF_NOWAIT))
    except BlockingIOError:
        return 0
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # tmpfs: never on a disk, so it can just be read
            raise
        return _some(os.preadv(piece.file.fd, (place,), piece.position))


def _some(count: int) -> int:
    if count == 0:
        raise ConnectionError("a segment file is shorter than its log")
    return count

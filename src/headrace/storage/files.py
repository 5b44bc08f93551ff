"""Open files that close themselves, ranges of them to be sent, and whole small files."""

from __future__ import annotations

import os.path
from typing import NamedTuple

from headrace.env import Disk
from headrace.env.env import CREATE, READ_ONLY, READ_WRITE, TRUNCATE
from headrace.storage.health import DirectoryHealth

_CHUNK_BYTES = 4 * 1024 * 1024


class OpenFile:
    """A descriptor owned by reference: a segment may be deleted while a response still sends from it."""

    __slots__ = ("_disk", "fd", "health")

    def __init__(self, disk: Disk, path: str, flags: int, health: DirectoryHealth | None = None) -> None:
        self._disk = disk
        self.health = health
        """The health of its data directory, for readers that use the file later in another place."""
        self.fd = -1
        self.fd = disk.open(path, flags)

    def read(self, size: int, position: int) -> bytes:
        try:
            return self._disk.pread(self.fd, size, position)
        except OSError as error:
            self.failed(error)
            raise

    def failed(self, error: OSError) -> None:
        """Report that reading from it failed."""
        if self.health is not None:
            self.health.judge(error)

    def __del__(self) -> None:
        if self.fd >= 0:
            self._disk.close(self.fd)


class FileRange(NamedTuple):
    file: OpenFile
    position: int
    size: int


def read_file(disk: Disk, path: str) -> bytes:
    file = OpenFile(disk, path, READ_ONLY)
    parts: list[bytes] = []
    position = 0
    while part := disk.pread(file.fd, _CHUNK_BYTES, position):
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def write_at(disk: Disk, path: str, position: int, data: bytes, sync: bool = False) -> None:
    """Write `data` after the first `position` bytes of a file, which are kept; at 0 the file is rewritten."""
    file = OpenFile(disk, path, READ_WRITE | CREATE | (0 if position else TRUNCATE))
    _write_fully(disk, file.fd, data, position)
    if sync:
        disk.fdatasync(file.fd)


def copy_range(disk: Disk, fd: int, position: int, end: int, path: str) -> None:
    """Copy a range of an open file into a new file."""
    target, written = OpenFile(disk, path, READ_WRITE | CREATE | TRUNCATE), 0
    while position < end and (part := disk.pread(fd, min(_CHUNK_BYTES, end - position), position)):
        _write_fully(disk, target.fd, part, written)
        position, written = position + len(part), written + len(part)


def write_atomically(disk: Disk, path: str, data: bytes, sync: bool = True) -> None:
    """Replace a file so that a crash leaves the old one or the new one, never a part."""
    temporary = path + ".tmp"
    file = OpenFile(disk, temporary, READ_WRITE | CREATE | TRUNCATE)
    _write_fully(disk, file.fd, data, 0)
    if sync:
        disk.fsync(file.fd)
    disk.rename(temporary, path)
    if sync:
        disk.fsync_directory(parent_of(path))


def parent_of(path: str) -> str:
    return os.path.dirname(path) or "."


def _write_fully(disk: Disk, fd: int, data: bytes, position: int) -> None:
    rest = memoryview(data)
    while rest:
        written = disk.pwrite(fd, rest, position)
        if written <= 0:
            raise OSError(f"nothing of {len(rest)} bytes was written at {position}")
        rest, position = rest[written:], position + written

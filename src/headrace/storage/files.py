"""An open file that closes itself when the last reader lets go, and a range of it to be sent."""

from __future__ import annotations

from typing import NamedTuple

from headrace.env import Disk


class OpenFile:
    """A descriptor owned by reference: a segment may be deleted while a response still sends from it."""

    __slots__ = ("_disk", "fd")

    def __init__(self, disk: Disk, path: str, flags: int) -> None:
        self._disk = disk
        self.fd = -1
        self.fd = disk.open(path, flags)

    def __del__(self) -> None:
        if self.fd >= 0:
            self._disk.close(self.fd)


class FileRange(NamedTuple):
    file: OpenFile
    position: int
    size: int

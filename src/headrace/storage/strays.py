"""What is set aside instead of deleted: logs without a topic, files not understood, segments that do not fit.

    orders-0.20261116T025152-1f0c2a9b-stray/     a log, under the name it had, the UTC time, and something unique
    00000000000000000007.log.2026...-stray       a file of a log
    orders-0.20261116T025152-1f0c2a9b-moved/     a log whose partition has moved to other brokers

Nothing reads them. To use one again, stop the broker, take the end off its name, and start. They are deleted
`headrace.stray.retention.ms` (`headrace.moved.retention.ms`) after the time in their name.
"""

from __future__ import annotations

import logging
import os.path
import re
from datetime import UTC, datetime

from headrace.env import Env
from headrace.storage.files import copy_range
from headrace.storage.health import PASSING

logger = logging.getLogger(__name__)

STRAY = "-stray"
MOVED = "-moved"
_STAMP = "%Y%m%dT%H%M%S"
_END = re.compile(r"\.([0-9]{8}T[0-9]{6})-[0-9a-f]{8}-(?:stray|moved)")
_END_CHARACTERS = len(".20261116T025152-1f0c2a9b-stray")
_MAX_FILE_NAME = 255
KEEP_FOR_EVER = -1


def name_before_aside(name: str) -> str:
    """The name that something had before it was set aside; other names are unchanged."""
    return name[:-_END_CHARACTERS] if _END.fullmatch(name[-_END_CHARACTERS:]) else name


class Strays:
    """The strays of one data directory, and since when they exist. Any thread may add one."""

    __slots__ = ("_env", "_since_ms")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._since_ms: dict[str, int] = {}

    def __len__(self) -> int:
        """The number of strays, without logs that have moved to other brokers: they are no problem."""
        return sum(not path.endswith(MOVED) for path in self._since_ms)

    def add(self, path: str) -> None:
        """Add a stray that was found. If its name contains no time (Kafka's do not), it counts from now."""
        match = _END.fullmatch(path[-_END_CHARACTERS:])
        try:
            since = datetime.strptime(match[1] if match else "", _STAMP).replace(tzinfo=UTC)
        except ValueError:
            self._since_ms[path] = self._env.clock.wall_ms()
        else:
            self._since_ms[path] = int(since.timestamp() * 1000)

    def name_for(self, path: str, number: int | None = None, kind: str = STRAY) -> str:
        """A new name beside the old one. `number` stays; the part before it is shortened if necessary."""
        since = datetime.fromtimestamp(self._env.clock.wall_ms() / 1000, UTC).strftime(_STAMP)
        tail = "" if number is None else f"-{number}"
        end = f"{tail}.{since}-{self._env.rng.bytes(4).hex()}{kind}"
        directory, name = os.path.split(path)
        return f"{directory}/{name.removesuffix(tail)[: _MAX_FILE_NAME - len(end)]}{end}"

    def set_aside(self, path: str, why: str, number: int | None = None, beside: str | None = None) -> str:
        """Rename, log and remember what should not be there. Returns the new path, named like `beside` if
        given."""
        aside = self.name_for(beside or path, number)
        self._env.disk.rename(path, aside)
        self.add(aside)
        logger.warning("%s: %s. It was set aside as %s", path, why, os.path.basename(aside))
        return aside

    def set_moved_aside(self, path: str, number: int) -> None:
        """Rename a log whose partition this broker no longer holds."""
        aside = self.name_for(path, number, MOVED)
        self._env.disk.rename(path, aside)
        self.add(aside)
        logger.info("%s has moved to other brokers. It is kept for some time as %s", path, os.path.basename(aside))

    def copy_aside(self, fd: int, position: int, end: int, path: str, why: str) -> None:
        """Copy the bytes of an open file that will be cut off; on a full disk they are lost."""
        aside, disk = self.name_for(path), self._env.disk
        try:
            copy_range(disk, fd, position, end, aside)
        except OSError as error:
            if error.errno not in PASSING:
                raise
            logger.warning("%s: %s, and they cannot be set aside: %s", path, why, error)
            if disk.exists(aside):
                disk.unlink(aside)
            return
        self.add(aside)
        logger.warning("%s: %s. They were set aside as %s", path, why, os.path.basename(aside))

    def take_due(self, keep_ms: int, kind: str = STRAY) -> list[str]:
        """The strays of a kind whose time is over; the caller removes them with `remove`."""
        if keep_ms == KEEP_FOR_EVER:
            return []
        before = self._env.clock.wall_ms() - keep_ms
        due = [
            path
            for path, since in self._since_ms.items()
            if since <= before and path.endswith(MOVED) == (kind == MOVED)
        ]
        for path in due:
            del self._since_ms[path]
        return due

    def remove(self, paths: list[str]) -> None:
        """Delete files or directories. One that is already gone counts as removed. Blocking."""
        disk = self._env.disk
        for path in paths:
            try:
                disk.unlink(path)
            except IsADirectoryError:
                disk.remove_tree(path)
            except FileNotFoundError:
                continue
            logger.info("%s was set aside, and its retention time is over: it is deleted", path)

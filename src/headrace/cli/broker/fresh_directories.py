"""The data directories that a start creates, and removes again if it fails. Existing directories always stay, and
so does one with records or a running broker.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from headrace.cli.broker.run_files import PID

_SEGMENT = re.compile(r"\d{20}\.log")


class FreshDirectories:
    def __init__(self) -> None:
        self._made: list[Path] = []
        """Data directories."""
        self._parents: list[Path] = []
        """Each before those in it."""

    def make(self, directory: str) -> None:
        path = Path(directory).absolute()
        missing = [one for one in (path, *path.parents) if not os.path.lexists(one)]
        self._parents += reversed(missing[1:])
        self._made += missing[:1]
        os.makedirs(path, exist_ok=True)

    def remove(self) -> None:
        for directory in self._made:
            if not _in_use(directory):
                shutil.rmtree(directory, ignore_errors=True)
        for parent in reversed(self._parents):
            with suppress(OSError):  # it belongs to another process by now, or was never created
                parent.rmdir()

    def __len__(self) -> int:
        return len(self._made)

    @contextmanager
    def removed_on_failure(self) -> Iterator[None]:
        """Remove the new directories if the block raises."""
        try:
            yield
        except (click.ClickException, click.exceptions.Exit):
            self.remove()
            raise


def _in_use(directory: Path) -> bool:
    return any(_has_bytes(Path(at, name)) for at, _, names in os.walk(directory) for name in _telling(names))


def _telling(names: Sequence[str]) -> list[str]:
    """Files that show use: they are not empty once there are records or a running broker."""
    return [name for name in names if name == PID or _SEGMENT.fullmatch(name)]


def _has_bytes(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except OSError:
        return True

"""Errors in a user's code: where and why, in one line."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType


class UsersCode:
    """A block that runs code of a file: whatever it raises becomes one error, as in `keep.py:3: KeyError: 'a'`."""

    def __init__(self, path: str | Path, told: Callable[[str], Exception]) -> None:
        self._path = path
        self._told = told

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            raise self._told(self._line_of(error, trace)) from error

    def _line_of(self, error: Exception, trace: TracebackType | None) -> str:
        """The last line of the file in the traceback."""
        frames = traceback.extract_tb(trace)
        lines = [frame.lineno for frame in frames if frame.filename == os.path.abspath(self._path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = f"{self._path}:{line}" if line else str(self._path)
        return f"{where}: {type(error).__name__}: {getattr(error, 'msg', error)}"

"""Code of a user's that fails: where and why, in a line."""

from __future__ import annotations

import os
import traceback
from pathlib import Path


def failure_in(path: str | Path, error: Exception) -> str:
    """With the last line of that file that took part: `keep.py:3: ZeroDivisionError: division by zero`."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == os.path.abspath(path)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    where = f"{path}:{line}" if line else str(path)
    return f"{where}: {type(error).__name__}: {getattr(error, 'msg', error)}"

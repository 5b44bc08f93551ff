"""Sentences on a terminal, broken between words. A command in backquotes stays on one line, to be copied.

Only a terminal gets broken lines: a pipe or a file gets each sentence as it is, for `grep`.
"""

from __future__ import annotations

import os
import re
from typing import IO, Any

from headrace.cli.common.fitting import columns_of

MINIMUM_WIDTH = 40
"""A narrower terminal breaks the lines itself."""
_WORD = re.compile(r"[^\s`]*`[^`\n]*`[^\s`]*|\S+")


def for_stream(text: str, stream: IO[Any], hanging: int = 0) -> str:
    """The text as `stream` shows it best; further lines of a sentence begin `hanging` columns to the right."""
    width = _width(stream)
    return text if width is None or width < MINIMUM_WIDTH else wrapped(text, width, hanging)


def wrapped(text: str, width: int, hanging: int = 0) -> str:
    return "\n".join(_wrapped_line(line, width, hanging) for line in text.split("\n"))


def _wrapped_line(line: str, width: int, hanging: int) -> str:
    if columns_of(line) <= width:
        return line
    words = _WORD.findall(line)
    indent = line[: len(line) - len(line.lstrip())]
    lines = [indent + words[0]] if words else [line]
    for word in words[1:]:
        if columns_of(lines[-1]) + 1 + columns_of(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(indent + " " * hanging + word)
    return "\n".join(lines)


def _width(stream: IO[Any]) -> int | None:
    try:
        descriptor = stream.fileno()
        return os.get_terminal_size(descriptor).columns if os.isatty(descriptor) else None
    except (OSError, ValueError):  # closed, or no file at all
        return None

"""What a broker's log must not have, whatever is done to it: tracebacks, and the same line again and again."""

from __future__ import annotations

import re
from collections import Counter

MOST_OF_A_KIND = 60
_LINE = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b\s*(.*)")
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(.*)", re.MULTILINE)
"""Up to the line that names the error."""
_VARIABLE = re.compile(r"\d+")


def noise(text: str) -> list[str]:
    found = [f"a traceback: {match[1]}" for match in _TRACEBACK.finditer(text)]
    return found + [
        f"{count} lines like {line!r}" for line, count in warnings(text).most_common() if count > MOST_OF_A_KIND
    ]


def warnings(text: str) -> Counter[str]:
    """Lines of a level that wants attention, without their numbers."""
    return Counter(_VARIABLE.sub("#", match[0]) for match in _LINE.finditer(text))

"""Figures that move in place on a terminal, plain lines elsewhere, and small charts of blocks."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
BAR_WIDTH = 24
PLOT_WIDTH = 64
PLAIN_EVERY_S = 2.0


class Screen:
    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = 0
        self._next_plain_s = 0.0

    def say(self, text: str = "") -> None:
        print(text, flush=True)

    def strong(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._terminal else text

    def colour(self, code: int, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._terminal else text

    def frame(self, lines: list[str], plain: str = "") -> None:
        """Lines in the place of the last ones; where nothing can move, `plain` now and then."""
        if not self._terminal:
            if plain and time.monotonic() >= self._next_plain_s:
                self._next_plain_s = time.monotonic() + PLAIN_EVERY_S
                self.say(plain)
            return
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        print(up + "".join(f"\r\x1b[K{line}\n" for line in lines), end="", flush=True)
        self._drawn = len(lines)


def bar(value: float, full: float, width: int = BAR_WIDTH) -> str:
    filled = min(width, round(width * value / full)) if full else 0
    return "█" * filled + "·" * (width - filled)


def plot(values: Sequence[float], height: int = 3, width: int = PLOT_WIDTH) -> list[str]:
    """The values from left to right as columns of blocks, several lines high; the largest reaches the top."""
    columns = squeeze(values, width)
    top = max(columns, default=0.0) or 1.0
    levels = [value / top * height * 8 for value in columns]
    return [
        "".join(BLOCKS[max(0, min(8, round(level - 8 * row)))] for level in levels)
        for row in reversed(range(height))
    ]


def squeeze(values: Sequence[float], width: int) -> list[float]:
    """So many that they fit: each is the largest of those it stands for."""
    if len(values) <= width:
        return list(values)
    edges = [len(values) * place // width for place in range(width + 1)]
    return [max(values[start:end]) for start, end in itertools.pairwise(edges)]

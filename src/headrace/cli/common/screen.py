"""Lines on a terminal that are redrawn in place."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import click


class Screen:
    """Draws lines in the place of those drawn before, as far as they fit."""

    def __init__(self, if_too_many: str = "", err: bool = False) -> None:
        """`if_too_many` is advice for when not all lines fit."""
        self._if_too_many = f"; {if_too_many}" if if_too_many else ""
        self._err = err
        self._drawn = 0

    def draw(self, lines: Sequence[str]) -> None:
        width, height = _terminal_size()
        if len(lines) > height - 1:
            hidden = len(lines) - (height - 2)
            lines = [*lines[: height - 2], f"... and {hidden} more{self._if_too_many}"]
        back = f"\x1b[{self._drawn}F" if self._drawn else ""
        shown = "".join(f"{_cut(line, width)}\x1b[K\n" for line in lines)
        click.echo(f"{back}{shown}\x1b[J", nl=False, color=True, err=self._err)
        self._drawn = len(lines)


def _terminal_size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return size.columns, size.lines


def _cut(line: str, width: int) -> str:
    """A line that does not fit would take two, and the next drawing would miss its place."""
    plain = click.unstyle(line)
    if len(plain) <= width:
        return line
    cut = plain[: width - 1] + "…"
    return f"\x1b[1m{cut}\x1b[0m" if plain != line else cut

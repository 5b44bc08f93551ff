"""How wide the columns of a table may be, so that its lines fit a terminal.

What is too wide is shortened with an ellipsis: text, from the widest column on, the first column last; numbers
never. If that does not do, columns at the right are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

GAP = "  "
LEAST_TEXT = 8
LEAST_FIRST = 20
"""The first column names what a row is about."""
INCOMPRESSIBLE = 1 << 30


def least_widths(titles: Sequence[str], numeric: Sequence[bool]) -> list[int]:
    """How far each column may be shortened."""
    least = [max(LEAST_TEXT, len(title)) for title in titles]
    if least:
        least[0] = LEAST_FIRST
    return [INCOMPRESSIBLE if fixed else width for width, fixed in zip(least, numeric, strict=True)]


def fitted(widths: Sequence[int], least: Sequence[int], limit: int) -> list[int]:
    """The widths of as many columns, from the left, as there is room for; of one at least."""
    for count in range(len(widths), 1, -1):
        found = _shrunk(widths[:count], least, limit)
        if found is not None:
            return found
    return [min(width, limit) for width in widths[:1]]


def _shrunk(widths: Sequence[int], least: Sequence[int], limit: int) -> list[int] | None:
    shrinking = list(widths)
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - limit
    while excess > 0:
        wide = [place for place in range(len(shrinking)) if shrinking[place] > least[place]]
        if not wide:
            return None
        place = max(wide[1:] if wide[0] == 0 and len(wide) > 1 else wide, key=shrinking.__getitem__)
        shrinking[place] -= 1
        excess -= 1
    return shrinking


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"

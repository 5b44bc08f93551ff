"""How wide the columns of a table may be, so that its lines fit a terminal.

What is too wide is shortened with an ellipsis: text, from the widest column on; numbers never. The first column
names what a row is about: it is shortened after the others. If that is not enough, columns at the right are left
out. Names are shortened in the middle: names in one system often begin with the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import east_asian_width

GAP = "  "
LEAST_TEXT = 8
LEAST_FIRST = 12
STAGES = (20, 12, 0)
"""All columns are shortened to one of these, the first one last, before any is shortened to the next."""
LEAST_FOR_BOTH_ENDS = 12
INCOMPRESSIBLE = 1 << 30


def least_widths(titles: Sequence[str], numeric: Sequence[bool]) -> list[int]:
    """The width to which each column may be shortened."""
    least = [max(LEAST_TEXT, len(title)) for title in titles]
    if least:
        least[0] = LEAST_FIRST
    return [INCOMPRESSIBLE if fixed else width for width, fixed in zip(least, numeric, strict=True)]


def fitted(widths: Sequence[int], least: Sequence[int], limit: int) -> list[int]:
    """The widths of the columns, from the left, for which there is room; at least one."""
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
        stage = next(width for width in STAGES if any(shrinking[place] > width for place in wide))
        above = [place for place in wide if shrinking[place] > stage]
        place = max([place for place in above if place] or above, key=shrinking.__getitem__)
        shrinking[place] -= 1
        excess -= 1
    return shrinking


def shortened(text: str, width: int) -> str:
    """Cut the middle out of a name, and the end off a text."""
    if len(text) <= width:
        return text
    tail = 0 if " " in text or width < LEAST_FOR_BOTH_ENDS else (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes: Chinese characters and most emoji two each."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(one) in "WF") for one in text)

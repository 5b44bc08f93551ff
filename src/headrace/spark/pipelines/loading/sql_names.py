"""Which views a query reads, found without a parser: names in places where SQL expects a table.

Comments and literals are skipped. Inside a FROM clause the names after FROM, JOIN, a comma or an opening
bracket count. A column can be taken for a view where it stands like one (`extract(day FROM ts)`): too many
are found, never too few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_TOKEN = re.compile(
    r"""--[^\n]* | /\*.*?\*/ | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*"   # skipped
      | `(?P<quoted>[^`]+)` | (?P<word>[A-Za-z_]\w*) | (?P<sign>[(),.])""",
    re.DOTALL | re.VERBOSE,
)
_BEGIN = frozenset({"from", "join"})
_END = frozenset(
    {"select", "where", "group", "having", "order", "limit", "union", "except", "intersect", "on", "using"}
    | {"window", "sort", "cluster", "distribute"}
)
_BEFORE_A_VIEW = frozenset({*_BEGIN, ",", "(", "table", "stream"})
_WITH = re.compile(r"`?([A-Za-z_]\w*)`?\s*(?:\([^()]*\))?\s+AS\s*\(\s*(?:SELECT|WITH|FROM|VALUES|TABLE)\b", re.I)


def views_read(sql: str, known: Iterable[str]) -> list[str]:
    """The known names that the query reads, in the order of its text."""
    by_lower = {name.lower(): name for name in known}
    found: dict[str, None] = {}
    in_from = [False]
    before = ""
    for token in _TOKEN.finditer(sql):
        word = token["quoted"] or token["word"] or token["sign"]
        if word is None:
            continue
        word = word.lower()
        if word == "(":
            in_from.append(in_from[-1])
        elif word == ")":
            in_from = in_from[:-1] or [False]
        elif word in _BEGIN:
            in_from[-1] = True
        elif word in _END:
            in_from[-1] = False
        elif in_from[-1] and before in _BEFORE_A_VIEW and word in by_lower:
            found[by_lower[word]] = None
        before = word
    return list(found)


def names_inside(sql: str) -> set[str]:
    """Names that the query gives itself (WITH name AS ...), in lower case."""
    return {match[1].lower() for match in _WITH.finditer(sql)}

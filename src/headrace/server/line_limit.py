"""Log lines that clients can cause without end: the first is written, the others of a while are summed up.

Lines are of the same kind when they differ in numbers only. So a flood of hostile connections costs two lines,
and one more for every ten seconds that it lasts.
"""

from __future__ import annotations

import logging
import re

from headrace.env import Clock

WINDOW_SECONDS = 10.0
MAX_KINDS = 32
"""Beyond that all are of one kind: who varies the text gains nothing."""
KIND_CHARACTERS = 80
OTHERS = "for various reasons"
_NUMBER = re.compile(r"-?\d+")


class LineLimit:
    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self._clock = clock
        self._log = log
        self._more: dict[tuple[str, str], int] = {}
        """By what happened and why: how often since the last line."""

    def say(self, level: int, what: str, why: str, who: str, error: BaseException | None = None) -> None:
        """`what` is a sentence with a place for `who`, as "Closed the connection of %s"; `why` is its reason."""
        kind = (what, _NUMBER.sub("#", why[:KIND_CHARACTERS]))
        if kind not in self._more and len(self._more) >= MAX_KINDS:
            kind = (what, OTHERS)
        if self._is_first(kind, level):
            self._log.log(level, f"{what}: %s", who, why, exc_info=error)

    def say_pairs(self, level: int, event: str, line: str) -> None:
        """A line that programs read, of which only equal ones are of a kind."""
        kind = (event, line)
        if kind not in self._more and len(self._more) >= MAX_KINDS:
            kind = (event, f"{event} others=true")
        if self._is_first(kind, level):
            self._log.log(level, "%s", kind[1])

    def _is_first(self, kind: tuple[str, str], level: int) -> bool:
        if kind in self._more:
            self._more[kind] += 1
            return False
        self._more[kind] = 0
        self._clock.call_later(WINDOW_SECONDS, lambda: self._sum_up(level, kind))
        return True

    def _sum_up(self, level: int, kind: tuple[str, str]) -> None:
        more = self._more.pop(kind)
        if not more:
            return
        what, why = kind
        if why.startswith(what):
            self._log.log(level, "%s more=%d seconds=%d", why, more, WINDOW_SECONDS)
        else:
            others = what.replace("%s", "others")
            self._log.log(level, "%s: %s (%d more in the last %d s)", others, why, more, WINDOW_SECONDS)
        self._more[kind] = 0
        self._clock.call_later(WINDOW_SECONDS, lambda: self._sum_up(level, kind))

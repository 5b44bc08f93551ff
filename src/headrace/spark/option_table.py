"""Options of the source and the sink: one row each, and how their text becomes a value.

Spark hands options over as text, with names in lower case. Tables of `Option` say which exist and what they
mean; the docs are made from them. `GivenOptions` reads values, and every mistake is an `OptionError` that names
the option, says what is wrong with it and what to write instead.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_DURATION = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)
_DURATION_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SIZE_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
NEAR = 0.8
"""How alike an unknown name and a known one must be to be taken for a typo."""


class Option(NamedTuple):
    """A row of the table."""

    name: str
    default: str  # "" when there is none
    meaning: str
    use: str = "both"  # "stream" or "batch" when it has a meaning in one of them only


class OptionError(ValueError):
    """An option the user got wrong. `str()` is the whole message."""

    def __init__(self, option: str, problem: str, advice: str = "") -> None:
        super().__init__(option, problem, advice)
        self.option = option
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return f"option {self.option}: {self.problem}" + (f"; {self.advice}" if self.advice else "")


class GivenOptions:
    """The options as given, by name in any case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def names(self) -> list[str]:
        return sorted(self._values)

    def text(self, name: str) -> str | None:
        """The given text, without surrounding spaces."""
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(name, f"{text!r} is neither true nor false")
        return text.lower() == "true"

    def integer(self, name: str, *, minimum: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            raise OptionError(name, f"{text!r} is not a whole number") from None
        if value < minimum:
            raise OptionError(name, f"{value} is too small", f"the smallest value is {minimum}")
        return value

    def duration_ms(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        value = parse_duration_ms(text)
        if value is None:
            raise OptionError(name, f"{text!r} is not a duration", "write it as 500ms, 30s, 15m, 2h or 1d")
        return value

    def size_bytes(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        match = _SIZE.fullmatch(text)
        value = int(match[1]) * _SIZE_BYTES[match[2].lower()] if match else 0
        if value <= 0:
            raise OptionError(name, f"{text!r} is not a size above 0", "write it as 1048576, 512k, 64m or 1g")
        return value


def parse_duration_ms(text: str) -> int | None:
    """`500ms`, `30s`, `15m` (or min), `2h`, `1d`, `1w`; a number alone is milliseconds. None if it is none of
    these."""
    match = _DURATION.fullmatch(text.strip())
    unit = _DURATION_MS.get((match[2] or "ms").lower()) if match else None
    return None if match is None or unit is None else int(match[1]) * unit


def near_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that an unknown one probably means."""
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=NEAR)
    return by_lower[near[0]] if near else None

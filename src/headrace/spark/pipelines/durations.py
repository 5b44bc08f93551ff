"""Spans of time as people write them: "10 minutes", "10m", "1h 30m", "500ms"; a bare number is seconds."""

from __future__ import annotations

import re

_UNITS_MS: dict[str, int] = {
    name: milliseconds
    for names, milliseconds in (
        ("ms millisecond milliseconds", 1),
        ("s sec secs second seconds", 1000),
        ("m min mins minute minutes", 60_000),
        ("h hour hours", 3_600_000),
        ("d day days", 86_400_000),
        ("w week weeks", 604_800_000),
    )
    for name in names.split()
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SPARK_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def parse_milliseconds(text: str) -> int:
    """Whole milliseconds. ValueError says how it is written."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return round(float(text) * 1000)
    total = 0.0
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[2].lower() not in _UNITS_MS:
            raise ValueError(f'"{text}" is not a duration')
        total += float(part[1]) * _UNITS_MS[part[2].lower()]
        position = part.end()
    if position == 0:
        raise ValueError('"" is not a duration')
    return round(total)


def spark_interval(milliseconds: int) -> str:
    """The text that Spark reads as this span, in the largest unit that keeps it whole."""
    for unit, size_ms in _SPARK_UNITS:
        if milliseconds and milliseconds % size_ms == 0:
            count = milliseconds // size_ms
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{milliseconds} milliseconds"

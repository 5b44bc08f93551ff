"""Positions as people write them."""

from __future__ import annotations

from datetime import datetime

import pytest

from headrace.cli.common.offset_spec import END, START, Kind, Point, Span, parse_span

NOW = 1_700_000_000_000


def local(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("start", START),
        ("beginning", START),
        ("Earliest", START),
        ("end", END),
        ("latest", END),
        ("0", Point(Kind.OFFSET, 0)),
        ("42", Point(Kind.OFFSET, 42)),
        ("-10", Point(Kind.BEFORE_END, 10)),
        ("+3", Point(Kind.AFTER_START, 3)),
        ("@1700000000", Point(Kind.TIME, NOW)),
        ("@1700000000123", Point(Kind.TIME, NOW + 123)),
        ("@-10m", Point(Kind.TIME, NOW - 600_000)),
        ("@-1.5h", Point(Kind.TIME, NOW - 5_400_000)),
        ("@now", Point(Kind.TIME, NOW)),
        ("@2024-05-01", Point(Kind.TIME, local("2024-05-01"))),
        ("@2024-05-01T12:30", Point(Kind.TIME, local("2024-05-01T12:30"))),
        ("@2024-05-01 12:30:15", Point(Kind.TIME, local("2024-05-01T12:30:15"))),
        ("@2024-05-01T12:30:00Z", Point(Kind.TIME, 1_714_566_600_000)),
        ("@2024-05-01T12:30:00+02:00", Point(Kind.TIME, 1_714_559_400_000)),
    ],
)
def test_one_place(text: str, begin: Point) -> None:
    assert parse_span(text, NOW) == Span(begin, None)


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("5:10", Point(Kind.OFFSET, 5), Point(Kind.OFFSET, 10)),
        (":10", START, Point(Kind.OFFSET, 10)),
        ("start:end", START, END),
        ("-10:", Point(Kind.BEFORE_END, 10), END),
        ("@-10m:", Point(Kind.TIME, NOW - 600_000), END),
        ("@-10m:-5m", Point(Kind.TIME, NOW - 600_000), Point(Kind.TIME, NOW - 300_000)),
        ("@-10m:@-5m", Point(Kind.TIME, NOW - 600_000), Point(Kind.TIME, NOW - 300_000)),
        ("@-10m:end", Point(Kind.TIME, NOW - 600_000), END),
        ("@2024-05-01:2024-05-02", Point(Kind.TIME, local("2024-05-01")), Point(Kind.TIME, local("2024-05-02"))),
        (
            "@2024-05-01T12:30:00Z:2024-05-01T12:30:01Z",
            Point(Kind.TIME, 1_714_566_600_000),
            Point(Kind.TIME, 1_714_566_601_000),
        ),
        ("@2024-05-01T12:30:", Point(Kind.TIME, local("2024-05-01T12:30")), END),
    ],
)
def test_ranges(text: str, begin: Point, end: Point) -> None:
    """A time has colons of its own."""
    assert parse_span(text, NOW) == Span(begin, end)


@pytest.mark.parametrize(
    "text", ["", "first", "1.5", "--5", "@", "@yesterday", "@-10x", "5:x", "@2024-13-01", "::"]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid (offset|time|duration)"):
        parse_span(text, NOW)

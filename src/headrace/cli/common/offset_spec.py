"""Positions in a log as people write them.

    start, beginning, earliest    the first record          end, latest    after the last one
    N      that offset            -N     the last N         +N     N after the first
    @T     the first record at or after a time              A:B    from A up to, not including, B
    A:     from A to the current end

T is a date or time (`2024-05-01`, `2024-05-01T12:30`, `2024-05-01T12:30:00Z`; local unless it says otherwise), a
time ago (`-10m`, `-2h`), `now`, or seconds or milliseconds since 1970. After `@T1:` the `@` of T2 may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

import click

from headrace.cli.common.options import parse_duration
from headrace.client.cluster import Cluster
from headrace.client.offsets import list_offsets
from headrace.model.topics import TopicPartition

SYNTAX = "start, end, N, -N (the last N), @TIME, or a range such as @-10m: or 5:10"
_MILLISECOND_DIGITS = 12
_WORDS = {"start": 0, "beginning": 0, "earliest": 0, "end": 1, "latest": 1}
_NUMBER = re.compile(r"([+-]?)(\d+)")


class Kind(Enum):
    OFFSET = auto()
    AFTER_START = auto()
    BEFORE_END = auto()
    TIME = auto()


class Point(NamedTuple):
    kind: Kind
    value: int


class Span(NamedTuple):
    begin: Point
    end: Point | None
    """None: continue for as long as there is more."""


START = Point(Kind.AFTER_START, 0)
END = Point(Kind.BEFORE_END, 0)


def parse_span(text: str, now_ms: int) -> Span:
    """ValueError says what is wrong."""
    text = text.strip()
    try:
        return Span(parse_point(text, now_ms), None)
    except ValueError as error:
        problem = error
    # Times contain colons too: take the first one that leaves something sensible on both sides.
    for place in (match.start() for match in re.finditer(":", text)):
        left, right = text[:place], text[place + 1 :]
        if left.startswith("@") and right and not right.startswith("@") and right not in _WORDS:
            right = "@" + right
        try:
            return Span(parse_point(left, now_ms) if left else START, parse_point(right, now_ms) if right else END)
        except ValueError:
            continue
    raise problem


def parse_point(text: str, now_ms: int, syntax: str = SYNTAX) -> Point:
    """ValueError says what can be written: `syntax`."""
    word = text.strip().lower()
    if word in _WORDS:
        return END if _WORDS[word] else START
    if word.startswith("@"):
        return Point(Kind.TIME, parse_time(text.strip()[1:], now_ms))
    match = _NUMBER.fullmatch(word)
    if match is None:
        raise ValueError(f"{text!r} is not a valid offset; write {syntax}")
    kind = {"": Kind.OFFSET, "+": Kind.AFTER_START, "-": Kind.BEFORE_END}[match[1]]
    return Point(kind, int(match[2]))


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970."""
    text = text.strip()
    if text == "now":
        return now_ms
    if text.startswith("-"):
        return now_ms - int(parse_duration(text[1:]) * 1000)
    if text.isdigit():
        return int(text) if len(text) >= _MILLISECOND_DIGITS else int(text) * 1000
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a valid time; write 2024-05-01T12:30, -10m, or seconds since 1970"
        ) from None


def span_type(text: str) -> Span:
    """The type of an option."""
    import time

    try:
        return parse_span(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


async def resolve(
    cluster: Cluster, point: Point, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """The offset that a point means in each partition, given where each begins and ends. Numbers stay."""
    if point.kind is Kind.TIME:
        found = await list_offsets(cluster, dict.fromkeys(ranges, point.value))
        return {one: found[one].offset if found[one].offset >= 0 else ranges[one][1] for one in ranges}
    if point.kind is Kind.OFFSET:
        return dict.fromkeys(ranges, point.value)
    if point.kind is Kind.AFTER_START:
        return {one: min(start + point.value, end) for one, (start, end) in ranges.items()}
    return {one: max(end - point.value, start) for one, (start, end) in ranges.items()}

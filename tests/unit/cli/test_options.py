"""Durations, sizes, pairs."""

from __future__ import annotations

import click
import pytest

from headrace.cli.options import duration, parse_pairs, size


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("500ms", 0.5), ("1.5m", 90), ("2h", 7200), ("7d", 604800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("5", 5),
        ("64k", 64_000),
        ("64KiB", 65_536),
        ("10MB/s", 10_000_000),
        ("1.5 GB", 1_500_000_000),
        ("2TiB", 2**41),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("convert", [duration, size])
@pytest.mark.parametrize("text", ["", "fast", "-5", "5 5", "1e3"])
def test_nonsense_is_a_usage_error(convert: type, text: str) -> None:
    with pytest.raises(click.BadParameter, match="write it as"):
        convert(text)


def test_pairs() -> None:
    assert parse_pairs(("a=b=c", " d = e "), "--set") == {"a": "b=c", "d": "e"}
    with pytest.raises(click.UsageError, match="--set 'x' is not of the form key=value"):
        parse_pairs(("x",), "--set")

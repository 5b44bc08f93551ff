"""How the text of an option becomes a value."""

from __future__ import annotations

import pytest

from headrace.spark.option_table import GivenOptions, OptionError, near_name, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15", 15),
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("15 MIN", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1w", 604_800_000),
        ("", None),
        ("m", None),
        ("1y", None),
        ("-5m", None),
        ("1.5h", None),
    ],
)
def test_spans_of_time(text: str, expected: int | None) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("2k", 2048), ("2KB", 2048), ("64m", 64 * 1024**2), ("1GiB", 1024**3), ("1t", 1024**4)],
)
def test_sizes(text: str, expected: int) -> None:
    assert GivenOptions({"size": text}).size_bytes("SIZE") == expected


def test_what_is_not_given_is_none_or_the_default() -> None:
    options = GivenOptions({})
    assert options.text("x") is None
    assert options.integer("x", minimum=1) is None
    assert options.duration_ms("x") is None
    assert options.size_bytes("x") is None
    assert options.boolean("x", True) is True
    assert "x" not in options


def test_an_error_is_one_sentence_with_option_problem_and_advice() -> None:
    with pytest.raises(OptionError) as caught:
        GivenOptions({"A": " 0 "}).integer("a", minimum=1)
    assert str(caught.value) == "option a: 0 is too small; the smallest value is 1"


def test_the_nearest_name() -> None:
    assert near_name("STARTINGOFFSET", ["startingOffsets", "endingOffsets"]) == "startingOffsets"
    assert near_name("path", ["startingOffsets"]) is None

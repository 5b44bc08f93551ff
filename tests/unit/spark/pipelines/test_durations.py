"""Durations as people write them, and as Spark reads them."""

from __future__ import annotations

import pytest

from headrace.spark.pipelines.durations import parse_milliseconds, spark_interval


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("1s", 1000),
        ("30", 30_000),
        ("1.5", 1500),
        ("10m", 600_000),
        ("10 minutes", 600_000),
        ("1 Minute", 60_000),
        ("2 hours", 7_200_000),
        ("1h30m", 5_400_000),
        ("1 hour 30 minutes", 5_400_000),
        ("1 day", 86_400_000),
        ("2w", 1_209_600_000),
        (" 0s ", 0),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_milliseconds(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "  ", "soon", "10 fortnights", "10m later", "-5s", "m", "10:30", "1e3s", "1 month"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_milliseconds(text)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 milliseconds"),
        (1, "1 milliseconds"),
        (1500, "1500 milliseconds"),
        (1000, "1 second"),
        (90_000, "90 seconds"),
        (60_000, "1 minute"),
        (600_000, "10 minutes"),
        (5_400_000, "90 minutes"),
        (3_600_000, "1 hour"),
        (172_800_000, "2 days"),
    ],
)
def test_as_spark_reads_it(milliseconds: int, text: str) -> None:
    assert spark_interval(milliseconds) == text
    assert parse_milliseconds(text) == milliseconds

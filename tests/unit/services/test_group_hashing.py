"""A group's partition is the one that Kafka's clients and tools compute."""

from __future__ import annotations

import pytest

from headrace.services.groups.hashing import LONGEST_REMEMBERED, _remembered, java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("abc", 96354),
        ("classic-group", -1_592_783_484),
        ("polygenelubricants", -(1 << 31)),
        ("😀", 1772899),
    ],
)
def test_java_hash(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_partition() -> None:
    assert partition_of("abc", 50) == 96354 % 50
    assert partition_of("polygenelubricants", 50) == 0, "the one number whose absolute value does not fit"
    assert {partition_of(f"group-{number}", 50) for number in range(1000)} == set(range(50))


def test_long_names_are_not_remembered() -> None:
    """Sixteen thousand of 30 KB were 500 MB."""
    before = _remembered.cache_info().currsize
    long = "a" * (LONGEST_REMEMBERED + 1)
    assert partition_of(long, 50) == abs(java_hash(long)) % 50
    assert _remembered.cache_info().currsize == before

"""Which changes a checkpoint cannot follow."""

from __future__ import annotations

import pytest

from headrace.spark.pipelines.compiling.checkpoints import Fingerprint, changes, fingerprint_from, what_it_reads
from headrace.spark.pipelines.definition import Source

BEFORE = Fingerprint((("raw", ("a", "b")),), ("Aggregate by host struct<n:bigint>",))


def test_it_survives_its_file() -> None:
    assert fingerprint_from(BEFORE.as_json()) == BEFORE


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"sources": [{}], "stateful": []}', '{"sources": 3}'])
def test_a_broken_file_says_nothing(text: str) -> None:
    assert fingerprint_from(text) is None


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (BEFORE, []),
        (Fingerprint((("raw", ("a", "b", "c")),), BEFORE.stateful), []),
        (
            Fingerprint((("raw", ("a",)),), BEFORE.stateful),
            ["source raw read a, b, and now reads a"],
        ),
        (
            Fingerprint((("raw", ("a", "b")), ("more", ("c",))), BEFORE.stateful),
            ["it read raw, and now reads raw, more"],
        ),
        (
            Fingerprint(BEFORE.sources, ()),
            ["what it keeps in its state is not the same: the aggregate, join or deduplication was changed"],
        ),
    ],
)
def test_changes(now: Fingerprint, expected: list[str]) -> None:
    assert changes(BEFORE, now) == expected


def test_the_order_of_sources_counts() -> None:
    two = Fingerprint((("a", ("x",)), ("b", ("y",))), ())
    assert changes(two, Fingerprint(two.sources[::-1], ())) == ["it read a, b, and now reads b, a"]
    three = Fingerprint((*two.sources, two.sources[0]), ())
    (told,) = changes(three, two)
    assert told == "the sinks that share its query, or what they read, are not the same"


def test_what_a_source_reads() -> None:
    assert what_it_reads(Source("s", 1, "topics", ("a", "b"))) == ("a", "b")
    assert what_it_reads(Source("s", 1, "topics", pattern="a.*")) == ("pattern a.*",)
    assert what_it_reads(Source("s", 1, "files", files="in/*.json")) == ("files in/*.json",)

"""Topics as groups see them, and the patterns that find them."""

from __future__ import annotations

import pytest

from headrace.groups.regex import MAX_PATTERN_LENGTH, matching_names
from headrace.groups.topics import TopicsView
from headrace.model.errors import ErrorCode, KafkaError
from headrace.testing.group_shell import topic


def test_the_hash_tells_a_change_of_what_is_subscribed_and_nothing_else() -> None:
    names = frozenset({"a", "b", "missing"})
    view = TopicsView((topic("a", 1), topic("b", 2), topic("c", 3)))
    same = TopicsView((topic("b", 2), topic("a", 1), topic("d", 9)))
    assert view.hash_of(names) == same.hash_of(names)
    for changed in (
        (topic("a", 2), topic("b", 2)),
        (topic("a", 1),),
        (topic("a", 1, 1), topic("b", 2)),
        (topic("a", 1), topic("b", 2), topic("missing", 1)),
    ):
        assert TopicsView(changed).hash_of(names) != view.hash_of(names)
    assert view.hash_of(frozenset({"missing"})) == view.hash_of(frozenset()) == 0
    assert -(2**63) <= view.hash_of(names) < 2**63


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", {"a"}),
        ("a.*", {"a", "ab"}),
        (".*b", {"b", "ab"}),
        ("a|b", {"a", "b"}),
        ("", set()),
        ("(a|a)*c", set()),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, expected: set[str]) -> None:
    assert matching_names(pattern, ("a", "b", "ab")) == expected


@pytest.mark.parametrize(
    "pattern", ["(", "[", "*", "(?=a)", "(?<!a)b", r"(a)\1", "a" * (MAX_PATTERN_LENGTH + 1), "\ud800"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as raised:
        matching_names(pattern, ())
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_would_hang_a_backtracking_engine_does_not() -> None:
    assert matching_names("(a+)+$", ("a" * 60 + "b",)) == frozenset()

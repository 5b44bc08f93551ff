"""Which sinks share a query. What Spark refuses to do in one is apart; what has a checkpoint stays as it is."""

from __future__ import annotations

import pytest

from headrace.spark.pipelines.compiling.grouping import (
    Membership,
    SinkFacts,
    apart,
    decide_queries,
    memberships_as_json,
    memberships_from,
    mode_of,
)
from headrace.spark.pipelines.definition import OutputMode


def sink(
    name: str, streams: str = "a", *, state: bool = False, mode: OutputMode = "append", view: str = "v"
) -> SinkFacts:
    return SinkFacts(name, view, mode, frozenset(streams), state)


def together(*sinks: SinkFacts, **letters: str) -> list[set[str]]:
    """The sinks of each query, and the sources of its dead letters behind a slash."""
    sent = {source: frozenset(readers.split()) for source, readers in letters.items()}
    return [{*one.sinks, *(f"/{name}" for name in one.letters)} for one in decide_queries(sinks, sent, [])]


WINDOW = sink("window", state=True)
JOIN = sink("join", "ab", state=True)
UPDATE = sink("update", state=True, mode="update", view="w")
ALL = sink("all", state=True, mode="complete")


@pytest.mark.parametrize(
    ("sinks", "letters", "expected"),
    [
        ([sink("x"), sink("y", view="w")], {"a": "x y"}, [{"x", "y", "/a"}]),
        ([sink("x"), sink("y", "b")], {}, [{"x"}, {"y"}]),
        ([sink("x"), WINDOW], {"a": "x window"}, [{"x", "window", "/a"}]),
        ([WINDOW, sink("other", state=True, view="w")], {}, [{"window", "other"}]),
        # The watermark of b would hold the window back.
        ([WINDOW, JOIN], {"a": "window join", "b": "join"}, [{"window", "/a"}, {"join", "/b"}]),
        ([JOIN, sink("x"), sink("y", "b")], {}, [{"join", "x", "y"}]),
        ([UPDATE, sink("x")], {"a": "update x"}, [{"update", "x", "/a"}]),
        ([UPDATE, WINDOW], {}, [{"update"}, {"window"}]),
        ([UPDATE, sink("u", state=True, mode="update", view="u")], {}, [{"update"}, {"u"}]),
        ([UPDATE, sink("u", state=True, mode="update", view="w")], {}, [{"update", "u"}]),
        ([ALL, sink("x")], {"a": "all x"}, [{"all"}, {"x", "/a"}]),
        ([ALL], {"a": "all"}, [{"all"}, {"/a"}]),
        # A table's dead letters go with a sink that reads the table.
        ([sink("x"), sink("y", "b")], {"t": "y"}, [{"x"}, {"y", "/t"}]),
    ],
)  # fmt: skip
def test_what_goes_together(sinks: list[SinkFacts], letters: dict[str, str], expected: list[set[str]]) -> None:
    assert together(*sinks, **letters) == expected


def test_folders_are_those_of_earlier_versions_where_nothing_is_shared() -> None:
    alone = decide_queries([sink("x"), ALL], {"t": frozenset({"all"})}, [])
    assert [one.folder for one in alone] == ["x", "all", "t.dead-letter"]
    (shared,) = decide_queries([sink("x")], {"a": frozenset({"x"})}, [])
    assert (shared.folder, shared.is_shared) == ("x.shared", True)


def test_what_has_begun_stays_and_what_is_new_begins_by_itself() -> None:
    letters = {"a": frozenset({"x", "y", "z"})}
    begun = [Membership("x.shared", ("x", "gone", "y"), ("a",))]
    assert decide_queries([sink("x"), sink("y"), sink("z")], letters, begun) == [
        Membership("x.shared", ("x", "y"), ("a",)),
        Membership("z", ("z",)),
    ]
    old = [Membership("x", ("x",)), Membership("a.dead-letter", (), ("a",))]
    assert decide_queries([sink("x")], letters, old) == old
    assert decide_queries([sink("n")], {}, old) == [Membership("n", ("n",))], "all that had begun is gone"


def test_the_mode_is_that_of_what_has_state() -> None:
    assert [mode_of(sinks) for sinks in ([sink("x"), UPDATE], [sink("x", mode="update")], [ALL], [])] == [
        "update", "append", "complete", "append",
    ]  # fmt: skip


def test_apart_each_has_its_own_folder() -> None:
    query = Membership("x.shared", ("x", "y"), ("a",))
    assert [one.folder for one in apart(query)] == ["x", "y", "a.dead-letter"]


def test_the_list_of_queries_is_read_as_it_was_written() -> None:
    queries = [Membership("x.shared", ("x", "y"), ("a",)), Membership("z", ("z",))]
    assert memberships_from(memberships_as_json(queries)) == queries
    assert memberships_from("{") == memberships_from('[{"folder": 1}]') == []

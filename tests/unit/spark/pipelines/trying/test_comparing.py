"""Rows that a test expects and rows that a view has; and files of tests that cannot be used."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.trying.cases import CaseError, cases_beside, load_cases
from headrace.spark.pipelines.trying.comparing import compare

PIPELINE = """\
sources:
  raw: {topic: t, format: json, schema: "id string"}
steps:
  - {name: kept, from: raw, filter: "id IS NOT NULL"}
sinks:
  out: {from: kept, topic: o}
"""


def test_order_and_unnamed_columns_do_not_count() -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert compare("v", ["a", "b"], rows, [{"a": 2}, {"a": 1}]) is None
    found = compare("v", ["a", "b"], rows, [{"a": 2}, {"a": 3}])
    assert found is not None
    assert (found.missing, found.unexpected) == (({"a": 3},), ({"a": 1},))


def test_how_often_a_row_comes_counts() -> None:
    found = compare("v", ["a"], [{"a": 1}, {"a": 1}], [{"a": 1}])
    assert found is not None
    assert found.unexpected == ({"a": 1},)


def test_no_rows_expected_means_none() -> None:
    assert compare("v", ["a"], [], []) is None
    assert compare("v", ["a"], [{"a": 1}], []) is not None


def test_times_and_numbers_are_compared_by_value() -> None:
    rows = [{"at": "2026-03-01T10:00:00.000Z", "n": 0.30000000000000004, "m": 2.0}]
    for at in ("2026-03-01T10:00:00Z", "2026-03-01 11:00:00+01:00", datetime(2026, 3, 1, 10, tzinfo=UTC)):
        assert compare("v", ["at", "n", "m"], rows, [{"at": at, "n": 0.3, "m": 2}]) is None


def test_a_column_that_is_not_there() -> None:
    found = compare("v", ["cents"], [], [{"cent": 1}])
    assert found is not None
    assert found.problem == "there is no column cent. Did you mean cents?"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tests: []", "has no tests"),
        ("[", "not valid YAML"),
        ("tests: [1]", "is not a mapping"),
        ("tests: [{name: n, expects: {}}]", "Did you mean expect?"),
        ("tests: [{name: n, given: {ray: []}}]", "there is no 'ray'. Did you mean raw?"),
        ("tests: [{name: n, given: {raw: 1}}]", "needs a list of rows"),
        ("tests: [{name: n, expect: {kept: [1]}}]", "a row is a mapping"),
        ("tests: [{name: n, given: {raw: []}}]", "expects nothing"),
        ("tests: [{name: n, malformed: {raw: some}}]", "needs a number"),
    ],
)
def test_mistakes_in_a_file_of_tests(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "p.yml").write_text(PIPELINE)
    cases = cases_beside(tmp_path / "p.yml")
    assert cases.name == "p.test.yml"
    cases.write_text(text)
    with pytest.raises(CaseError, match=words.replace("?", r"\?")):
        load_cases(cases, load_pipeline(tmp_path / "p.yml"))

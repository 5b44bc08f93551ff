"""Every mistake in a pipeline file is told with its line, its column and what to do (R-SPK-8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark.pipelines.definition import PipelineError, Problem
from headrace.spark.pipelines.loading.files import load_pipeline
from tests.unit.spark.pipelines.told_cases import told_cases

GOOD = "sources:\n  raw: {topic: t}\nsinks:\n  out: {from: raw, topic: o, format: raw}\n"


def problems_of(file: Path) -> str:
    with pytest.raises(PipelineError) as raised:
        load_pipeline(file, {})
    assert all(problem.path == str(file) for problem in raised.value.problems)
    return "\n".join(map(shown, raised.value.problems))


def shown(problem: Problem) -> str:
    advice = f"\n    {problem.advice}" if problem.advice else ""
    return f"{problem.line}:{problem.column} {problem.what}{advice}"


@pytest.mark.parametrize(("text", "told"), told_cases("loading/bad_files.txt"))
def test_mistakes_in_a_file(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "logs.yml"
    file.write_text(text)
    assert problems_of(file) == told


def test_there_are_many_of_them() -> None:
    assert len(told_cases("loading/bad_files.txt")) > 90


def test_the_example_around_the_mistakes_is_good(tmp_path: Path) -> None:
    file = tmp_path / "logs.yml"
    file.write_text(GOOD)
    assert load_pipeline(file, {}).name == "logs"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert problems_of(tmp_path / "none.yml") == "1:1 there is no such file"


def test_a_directory(tmp_path: Path) -> None:
    assert problems_of(tmp_path) == "1:1 this is a directory; a pipeline is a YAML file"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"name: a\nbootstrap: \xff\xfe\n", "2:1 this is not text in UTF-8"),
        (b"#" * 1_000_001, "1:1 more than 1000000 bytes: this is not a pipeline file"),
        (b"name: a\nbootstrap: b\x07\n", "2:1 not YAML: the character U+0007 is not allowed\n    Remove it."),
    ],
)
def test_a_file_that_is_no_text(tmp_path: Path, data: bytes, told: str) -> None:
    file = tmp_path / "logs.yml"
    file.write_bytes(data)
    assert problems_of(file) == told


def test_a_mapping_that_holds_itself_ends(tmp_path: Path) -> None:
    file = tmp_path / "logs.yml"
    file.write_text("sources: &s\n  raw: *s\nsinks: {out: {from: raw, console: true}}\n")
    assert problems_of(file).startswith("2:3 source raw has no key raw")


def test_how_problems_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "logs.yml"
    file.write_text(GOOD.replace("topic: t", "topic: t, formatt: json"))
    with pytest.raises(PipelineError) as raised:
        load_pipeline(file, {})
    assert str(raised.value) == f"{file}:2:19: source raw has no key formatt\n    Did you mean format?"


def test_swapped_letters_are_the_nearest_typo(tmp_path: Path) -> None:
    file = tmp_path / "logs.yml"
    file.write_text("sources: {raw: {topic: t, format: text}}\nsinks: {out: {form: raw, console: true}}\n")
    with pytest.raises(PipelineError) as raised:
        load_pipeline(file, {})
    assert "sink out has no key form\n    Did you mean from?" in str(raised.value)

"""`headrace connector` as a user has it: what `init` writes runs, and its own test passes."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.common.failure import NOT_FOUND, CommandError
from headrace.cli.main import command_line


def headrace(*arguments: str) -> str:
    """What it printed on both channels."""
    result = CliRunner().invoke(command_line, arguments, catch_exceptions=False, standalone_mode=False)
    assert result.exception is None
    return result.output


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootstrap: str) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_BOOTSTRAP_SERVERS", bootstrap)
    return tmp_path


def test_what_init_writes_runs_from_a_file_through_a_topic_into_a_table(place: Path) -> None:
    headrace("connector", "init", "pages")
    headrace("connector", "init", "pages-table", "--sink")
    (place / "pages-table.yaml").write_text(
        (place / "pages-table.yaml").read_text().replace("[pages-table]", "[pages]")
    )
    for round in range(2):
        with (place / "pages.txt").open("a") as file:
            file.write("".join(f"line {round}.{number}\n" for number in range(3)))
        assert "pages: 3 records copied." in headrace("connector", "run", "--once", "pages.yaml")
        headrace("connector", "run", "--once", "pages-table.yaml")
    stored = (
        sqlite3.connect(place / "pages-table.db").execute("SELECT CAST(value AS TEXT) FROM records").fetchall()
    )
    assert sorted(stored) == sorted((f"line {round}.{number}",) for round in range(2) for number in range(3))
    shown = {row["name"]: row for row in json.loads(headrace("connector", "status", "--format", "json"))}
    assert shown["pages"]["state"] == "finished"
    assert json.loads(shown["pages"]["position"]) == {"bytes": 54}
    assert shown["pages-table"]["connector"] == "pages_table.py:PagesTable"
    headrace("connector", "remove", "--yes", "pages.yaml")
    assert "pages" not in {row["name"] for row in json.loads(headrace("connector", "status", "--format", "json"))}


def test_the_test_that_init_writes_passes(place: Path) -> None:
    headrace("connector", "init", "words")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_words.py"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    with pytest.raises(CommandError, match="already exists"):
        headrace("connector", "init", "words")


def test_mistakes_are_told_before_anything_runs(place: Path) -> None:
    with pytest.raises(CommandError, match=r"There is no file nowhere\.yaml") as missing:
        headrace("connector", "check", "nowhere.yaml")
    assert missing.value.code == NOT_FOUND
    (place / "wrong.yaml").write_text("connector: none-such\n")
    with pytest.raises(CommandError, match="there is no connector none-such"):
        headrace("connector", "check", "wrong.yaml")
    headrace("connector", "init", "lines")
    (place / "lines.yaml").write_text('connector: lines.py:Lines\nconfig: {fiel: x, topic: "${TOPIC_X}"}\n')
    with pytest.raises(CommandError, match="no variable TOPIC_X"):
        headrace("connector", "check", "lines.yaml")
    (place / "lines.yaml").write_text("connector: lines.py:Lines\nconfig: {fiel: x, topic: t}\n")
    with pytest.raises(CommandError, match=r"no option fiel: did you mean file\?(.|\n)*file is missing"):
        headrace("connector", "check", "lines.yaml")
    (place / "lines.yaml").write_text("connector: lines.py:Lines\nconfig: {file: x, topic: t}\n")
    assert "can be run" in headrace("connector", "check", "lines.yaml")


def test_a_connector_is_described_by_its_declaration(place: Path) -> None:
    headrace("connector", "init", "marks")
    told = headrace("connector", "describe", "marks.py:Marks")
    assert "marks.py:Marks (source): Follows the lines of a file." in told
    assert "config.topic" in told

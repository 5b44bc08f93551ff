"""The command line as a user meets it: messages, exit codes, no tracebacks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import __version__
from tests.unit.cli.command_line import headrace


def test_version() -> None:
    command = [sys.executable, "-m", "headrace", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout) == (0, f"headrace {__version__}\n")


def test_help_lists_the_commands_on_stdout() -> None:
    result = headrace("--help")
    assert result.returncode == 0
    assert re.search(r"start +Start a broker", result.stdout)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["strat"], "Did you mean 'start'?"),
        (["zzz"], "Commands: start"),
        (["start", "--nope"], "No such option"),
        (["start", "--override", "num.partitions"], "key=value"),
        (["start", "--override", "=3"], "key=value"),
        (["start", "--override", "num.partition=3"], "did you mean num.partitions?"),
        (["start", "--override", "num.partitions=many"], "not a number of type INT"),
        (["start", "--override", "listeners=PLAINTEXT://:9092"], "--insecure"),
        (["start", "--override", "log.dirs=a", "--data-dir", "b"], "contradict"),
        (["start", "."], "Cannot read .: Is a directory"),
    ],
)
def test_mistakes_exit_2_with_one_clear_message(arguments: list[str], part: str, tmp_path: Path) -> None:
    result = headrace(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not list(tmp_path.iterdir()), "a refused start must leave nothing behind"


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("server.properties", "num.partitions=3\nlog.dirss=x", "did you mean log.dirs?"),
        ("server.properties", "num.partitions=\\u1", "server.properties: line 1"),
        ("headrace.toml", "num.partitions = ", "not valid TOML"),
        ("headrace.toml", "num.partitions = 2024-01-01", "not a string, number, boolean or list"),
        ("headrace.toml", "[num]\npartitions = 0", "at least 1"),
    ],
)
def test_mistakes_in_the_file(name: str, text: str, part: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    result = headrace("start", name, cwd=tmp_path)
    assert result.returncode == 2
    assert part in result.stderr
    assert "Traceback" not in result.stderr

"""Durations, sizes, pairs."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from headrace.cli.common.options import (
    BOOTSTRAP_VARIABLE,
    bootstrap_option,
    bootstrap_override,
    duration,
    parse_pairs,
    size,
)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("500ms", 0.5), ("1.5m", 90), ("2h", 7200), ("7d", 604800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("5", 5),
        ("64k", 64_000),
        ("64KiB", 65_536),
        ("10MB/s", 10_000_000),
        ("1.5 GB", 1_500_000_000),
        ("2TiB", 2**41),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("convert", [duration, size])
@pytest.mark.parametrize("text", ["", "fast", "-5", "5 5", "1e3"])
def test_nonsense_is_a_usage_error(convert: type, text: str) -> None:
    with pytest.raises(click.BadParameter, match="write it as"):
        convert(text)


def test_pairs() -> None:
    assert parse_pairs(("a=b=c", " d = e "), "--set") == {"a": "b=c", "d": "e"}
    with pytest.raises(click.UsageError, match="--set 'x' is not of the form key=value"):
        parse_pairs(("x",), "--set")


@click.group()
@click.option("-b", "bootstrap_everywhere")
def root(bootstrap_everywhere: str | None) -> None:
    pass


@root.command()
@bootstrap_override
def override(bootstrap: str | None) -> None:
    click.echo(bootstrap or "the file")


@root.command()
@bootstrap_option
def asked(bootstrap: tuple[object, ...]) -> None:
    click.echo(",".join(map(str, bootstrap)))


@pytest.mark.parametrize(
    ("before", "after", "environment", "expected"),
    [
        ([], [], "", {"override": "the file", "asked": "127.0.0.1:9092"}),
        ([], [], "env", {"override": "env:9092", "asked": "env:9092"}),
        (["-b", "root:1"], [], "env", {"override": "root:1", "asked": "root:1"}),
        (["-b", "root:1"], ["-b", "line:2"], "env", {"override": "line:2", "asked": "line:2"}),
    ],
)
def test_the_line_goes_before_the_root_and_that_before_the_environment(
    before: list[str], after: list[str], environment: str, expected: dict[str, str]
) -> None:
    for command, shown in expected.items():
        done = CliRunner(env={BOOTSTRAP_VARIABLE: environment}).invoke(root, [*before, command, *after])
        assert done.output == f"{shown}\n", command


def test_an_address_that_is_none_is_a_usage_error() -> None:
    for command in ("override", "asked"):
        done = CliRunner().invoke(root, [command, "-b", "host:port"])
        assert (done.exit_code, "host:port" in done.output) == (2, True)

"""What a check found: a list of results, each ok, a warning or an error, with what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from headrace.cli.common.failure import FAILED
from headrace.cli.common.output import PEOPLE, emit_data, headings_in_bold
from headrace.cli.common.wrapping import for_stream

OK, DOUBT, WRONG = "ok", "warning", "error"
_STATE = 7
_INDENT = " " * (_STATE + 2)
_COLORS = {OK: "green", DOUBT: "yellow", WRONG: "red"}


class Finding(NamedTuple):
    state: str
    what: str
    advice: str = ""


def emit_findings(findings: Sequence[Finding], format: str) -> None:
    if format not in PEOPLE:
        emit_data(
            [{"state": one.state, "what": one.what, "advice": one.advice or None} for one in findings], format
        )
        return
    for one in findings:
        state = f"{one.state:<{_STATE}}"
        what = for_stream(f"{_INDENT}{one.what}", sys.stdout)[_STATE:]
        click.echo((click.style(state, _COLORS[one.state]) if headings_in_bold() else state) + what)
        if one.advice:
            click.echo(for_stream(f"{_INDENT}-> {one.advice}", sys.stdout, hanging=3))


def exit_by(findings: Sequence[Finding]) -> None:
    """Exit with code 1 if there is an error; warnings do not count."""
    if any(one.state == WRONG for one in findings):
        raise click.exceptions.Exit(FAILED)

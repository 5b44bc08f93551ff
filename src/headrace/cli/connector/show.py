"""`headrace connector list` and `describe`: what can be run, and with which options."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import click

from headrace.cli.common.failure import NOT_FOUND, CommandError
from headrace.cli.common.options import format_option
from headrace.cli.common.output import Column, emit_rows, terminal_width
from headrace.connect.api import Connector, ConnectorError, Sink
from headrace.connect.definition import FILE_OPTIONS, SINK_OPTIONS, SOURCE_OPTIONS
from headrace.connect.options import ConfigOption
from headrace.connect.registry import find_connector, known_connectors

LINE_WIDTH = 100
CONNECTORS = (
    Column("name", "CONNECTOR"),
    Column("kind", "KIND"),
    Column("summary", "WHAT IT DOES"),
)
OPTIONS = (
    Column("name", "OPTION"),
    Column("kind", "VALUE"),
    Column("default", "DEFAULT"),
    Column("meaning", "MEANING"),
)


@click.command("list")
@format_option
def list_connectors(format: str) -> None:
    """Show the connectors that can be run: those of Headrace, and of installed packages."""
    emit_rows([_row(name) for name in sorted(known_connectors())], CONNECTORS, format, "There are no connectors.")


def _row(name: str) -> dict[str, Any]:
    try:
        found = find_connector(name)
    except ConnectorError as error:
        return {"name": name, "kind": None, "summary": f"{error}"}
    return {"name": name, "kind": kind_of(found), "summary": found.summary}


def kind_of(connector: type[Connector]) -> str:
    return "sink" if issubclass(connector, Sink) else "source"


@click.command()
@click.argument("connector")
@format_option
def describe(connector: str, format: str) -> None:
    """Show what CONNECTOR does and its options; a name from the list, module:Class or file.py:Class."""
    try:
        found = find_connector(connector, Path())
    except ConnectorError as error:
        raise CommandError(f"{str(error)[:1].upper()}{str(error)[1:]}.", NOT_FOUND) from None
    common = SINK_OPTIONS if issubclass(found, Sink) else SOURCE_OPTIONS
    rows = [_option(option, "config.") for option in found.options]
    rows += [_option(option, "") for option in (*FILE_OPTIONS[:4], *common)]
    if format == "table":
        _print(f"{connector} ({kind_of(found)}): {found.summary}", inspect.getdoc(found) or "", rows)
    else:
        emit_rows(rows, OPTIONS, format, "It has no options.")


def _print(title: str, told: str, rows: list[dict[str, Any]]) -> None:
    """Options as a list: a table has no room for what they mean."""
    width = min(terminal_width() or LINE_WIDTH, LINE_WIDTH)

    def echo(text: str, indent: str = "") -> None:
        click.echo(click.wrap_text(text, width, indent, indent, preserve_paragraphs=True))

    echo(title)
    if told:
        click.echo()
        echo(told)
    for row in rows:
        default = row["default"]
        more = "" if default is None else ", required" if default == "required" else f", default {default}"
        click.echo(f"\n{row['name']}  ({row['kind']}{more})")
        echo(row["meaning"], "    ")


def _option(option: ConfigOption, prefix: str) -> dict[str, Any]:
    return {
        "name": prefix + option.name,
        "kind": ", ".join(option.choices) or option.kind,
        "default": "required" if option.required else shown_default(option),
        "meaning": option.meaning,
    }


def shown_default(option: ConfigOption) -> str | None:
    if isinstance(option.default, bool):
        return str(option.default).lower()
    if isinstance(option.default, tuple):
        return ", ".join(option.default)
    return None if option.default is None else str(option.default)

"""Output for people and programs. stdout is data; everything else goes to stderr.

    table   aligned columns                       wide    the same with every column
    json    one document, indented                jsonl   one object a line
    yaml    one document

The rows are dictionaries with stable snake_case keys; columns say how the tables show them.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from headrace.cli.common.fitting import GAP, fitted, least_widths, shortened
from headrace.cli.common.wrapping import for_stream

FORMATS = ("table", "wide", "json", "jsonl", "yaml")
PEOPLE = ("table", "wide")
EMPTY = "-"
"""A cell without a value."""
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
Row = Mapping[str, Any]


class Column(NamedTuple):
    key: str
    title: str
    numeric: bool = False
    wide: bool = False
    """Shown by --format wide only."""
    show: Callable[[Any], str] | None = None
    """Formats a value that is not None for people; programs get it as it is."""
    important: bool = False
    """Whether it is omitted last when there is no room for all columns, even if others are further to the left."""


def count(key: str, title: str, wide: bool = False) -> Column:
    """A column of counts, with thousands separated. Ids, offsets and partitions are `number`s: they are copied."""
    return Column(key, title, True, wide, count_text)


def elapsed(key: str, title: str, wide: bool = False) -> Column:
    """A column of seconds, as people read them."""
    return Column(key, title, True, wide, duration_text)


def number(key: str, title: str, wide: bool = False) -> Column:
    return Column(key, title, True, wide)


def note(text: str) -> None:
    """Print a message on stderr, for people; not data."""
    click.echo(for_stream(text, sys.stderr), err=True)


def warn(text: str) -> None:
    note(f"Warning: {text}")


_writing = False


def write_out(data: bytes) -> None:
    """Write all of it: a pipe may accept only a part, and with `PYTHONUNBUFFERED` nobody else writes the rest."""
    global _writing
    _writing = True
    try:
        rest = memoryview(data)
        while rest:
            taken = sys.stdout.buffer.write(rest)
            rest = rest[taken:]
        sys.stdout.buffer.flush()
    finally:
        _writing = False


def is_stuck() -> bool:
    """Whether `write_out` is blocked because nobody reads. For a signal handler."""
    if not _writing:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return not poll.poll(0)


def emit_rows(rows: Sequence[Row], columns: Sequence[Column], format: str, empty: str = "") -> None:
    """Print a list; people get the message `empty` on stderr if there are no rows."""
    if format not in PEOPLE:
        emit_data(list(rows), format)
    elif rows:
        shown = [column for column in columns if format == "wide" or not column.wide]
        limit = terminal_width() if format == "table" else None
        roomy = _with_room(rows, shown, limit)
        for line in table_lines(rows, roomy, headings_in_bold(), limit):
            click.echo(line)
        hidden = [column for column in shown if column not in roomy]
        if titles := [column.title for column in hidden if any(shown_cell(row, column) != EMPTY for row in rows)]:
            note(f"No room for {', '.join(titles)}: --format wide shows all columns.")
    elif empty:
        note(empty)


def emit_data(data: Any, format: str) -> None:
    """Print one document for programs, or with jsonl one object per line."""
    if format == "json":
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    elif format == "jsonl":
        for one in data if isinstance(data, list) else [data]:
            click.echo(json.dumps(one, ensure_ascii=False))
    else:
        click.echo(yaml_text(data), nl=False)


def yaml_text(data: Any) -> str:
    try:
        import yaml
    except ImportError:
        raise click.UsageError("--format yaml needs the package pyyaml: pip install pyyaml") from None
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def emit_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print facts about one thing, for people."""
    listed = [(name, cell(value)) for name, value in pairs]
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        click.echo(f"{name:<{width}}{GAP}{value}".rstrip())


def headings_in_bold() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def terminal_width() -> int | None:
    """How long a line may be on a terminal; None for a pipe, which takes lines of any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table_lines(
    rows: Sequence[Row], columns: Sequence[Column], bold: bool = False, limit: int | None = None
) -> list[str]:
    """A heading and a line for each row, as wide as needed, or fitted into `limit`."""
    widths = _widths(rows, columns, limit)

    def line(values: Sequence[str]) -> str:
        padded = (
            value.rjust(width) if column.numeric else shortened(value, width).ljust(width)
            for value, width, column in zip(values, widths, columns, strict=False)
        )
        return GAP.join(padded).rstrip()

    heading = line([column.title for column in columns])
    values = ([shown_cell(row, column) for column in columns] for row in rows)
    return [f"{_BOLD}{heading}{_PLAIN}" if bold else heading, *map(line, values)]


def _with_room(rows: Sequence[Row], columns: Sequence[Column], limit: int | None) -> list[Column]:
    """The columns that fit: the first one always, and from the right the unimportant ones are left out first."""
    kept = list(columns)
    while len(_widths(rows, kept, limit)) < len(kept):
        spare = [column for column in kept[1:] if not column.important]
        kept.remove((spare or kept)[-1])
    return kept


def _widths(rows: Sequence[Row], columns: Sequence[Column], limit: int | None) -> list[int]:
    """The widths of the columns that are shown, from the left."""
    widths = [max([len(column.title), *(len(shown_cell(row, column)) for row in rows)]) for column in columns]
    if limit is None:
        return widths
    least = least_widths([column.title for column in columns], [column.numeric for column in columns])
    return fitted(widths, least, limit)


def shown_cell(row: Row, column: Column) -> str:
    value = row.get(column.key)
    return cell(value) if column.show is None or value is None else column.show(value)


def cell(value: Any) -> str:
    """A value as people read it."""
    if value is None or value == "" or value == []:
        return EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(cell(one) for one in value)
    if isinstance(value, Mapping):
        return ",".join(f"{name}={cell(one)}" for name, one in value.items())
    if isinstance(value, float):
        return f"{value:,.2f}"
    return str(value)


_UNITS = (("y", 31_536_000), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def duration_text(seconds: float) -> str:
    """A duration in its largest unit and the next one: 3y, 2d 4h, 2h 14m, 1m 5s, 3.2s, 40ms."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = round(seconds)
    for (unit, size), (smaller, part) in zip(_UNITS, [*_UNITS[1:], ("", 1)], strict=True):
        if whole >= size:
            rest = whole % size // part if unit not in ("y", "s") else 0
            return f"{whole // size:,}{unit}" + (f" {rest}{smaller}" if rest else "")
    raise AssertionError


def count_text(value: Any) -> str:
    """A number with at most two decimals; a whole number has none."""
    if isinstance(value, float):
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else cell(value)


def size_text(count: int) -> str:
    """Bytes with a unit that keeps them short."""
    if count < 0:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"

"""What a running pipeline shows: a table that is drawn again on a terminal, lines now and then elsewhere.

Progress goes to stderr. With `--format jsonl` what has changed is also an object a query on stdout, for programs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.cli.common.output import Column, emit_data, headings_in_bold, note, number, table_lines
from headrace.cli.common.screen import Screen

if TYPE_CHECKING:
    from headrace.spark.pipelines.running.progress import QueryProgress

DRAW_EVERY_S = 0.5
LINE_EVERY_S = 5.0
COLUMNS = (
    Column("query", "QUERY"),
    Column("state", "STATE"),
    number("batches", "BATCHES"),
    number("rows", "ROWS"),
    number("rate", "ROWS/S"),
    number("lag", "LAG"),
    number("batch_time", "BATCH-TIME"),
    number("late", "LATE"),
    number("malformed", "MALFORMED"),
)
COUNTED = ("rows", "batches", "late", "malformed", "restarts", "problem")
"""When one of these has changed, a line is worth printing; a state that comes and goes is not."""

Row = dict[str, Any]


class PipelineScreen:
    """`drawn` is for terminals to which nothing else writes."""

    def __init__(self, format: str, quiet: bool, drawn: bool = True) -> None:
        self._json = format == "jsonl"
        self._quiet = quiet
        self._screen = Screen(err=True) if drawn and sys.stderr.isatty() and not quiet else None
        self._message = ""
        self._next_draw_s = self._next_line_s = 0.0
        self._printed: dict[str, Row] = {}
        self._emitted: dict[str, Row] = {}
        self._rows: list[Row] = []
        self._began_s = time.monotonic()
        self._drawing = threading.Lock()
        """The thread that runs draws, and the main one when a signal comes."""

    def look(self, queries: Sequence[QueryProgress], final: bool = False) -> None:
        """Show the progress of the queries; `final` when they have ended."""
        now_s = time.monotonic()
        if now_s >= self._next_draw_s or final:
            self._next_draw_s = now_s + DRAW_EVERY_S
            self._rows = [query.as_row() for query in queries]
            self._emit()
            self._draw()
        if now_s >= self._next_line_s and not final:
            self._next_line_s = now_s + LINE_EVERY_S
            self._print_lines()

    def say(self, text: str) -> None:
        """A sentence about the run; on a terminal the last one stays above the table."""
        if self._quiet:
            return
        if self._screen is None or not self._rows:
            self._print_lines()
            note(text)
        else:
            self._message = text
            self._draw()

    def end(self, queries: Sequence[QueryProgress]) -> None:
        """Print a summary at the end. On a terminal the table already shows it."""
        if not queries or self._quiet:
            return
        self._rows = [query.as_row() for query in queries]
        self._message = ", ".join(dict.fromkeys(row["state"] for row in self._rows))
        self._draw()
        if self._screen is None:
            for text in ("", *self._table()):
                note(text)

    def give_up(self, text: str) -> None:
        """Print the last message, and ignore later progress, which would overwrite it."""
        with self._drawing:
            on_terminal, self._quiet, self._screen = self._screen is not None, True, None
        note(f"\n{text}" if on_terminal else text)  # after the ^C that the terminal shows

    def _emit(self) -> None:
        if not self._json:
            return
        changed = [row for row in self._rows if self._emitted.get(row["query"]) != row]
        emit_data([{"time": round(time.time(), 3), **row} for row in changed], "jsonl")
        self._emitted = {row["query"]: row for row in self._rows}

    def _print_lines(self) -> None:
        if self._quiet or self._screen is not None:
            return
        for row in self._rows:
            before = self._printed.get(row["query"], {})
            if any((row[name] or None) != (before.get(name) or None) for name in COUNTED):
                note(line(for_people([row])[0]))
        self._printed = {row["query"]: row for row in self._rows}

    def _draw(self) -> None:
        with self._drawing:
            self._draw_alone()

    def _draw_alone(self) -> None:
        if self._screen is None:
            return
        heading = f"{clock(time.monotonic() - self._began_s)}  {self._message or 'running; Ctrl-C to stop'}"
        problems = dict.fromkeys(row["problem"] for row in self._rows if row["problem"])
        self._screen.draw([heading, "", *self._table(), *(("", *problems) if problems else ())])

    def _table(self) -> list[str]:
        return list(table_lines(for_people(self._rows), COLUMNS, headings_in_bold()))


def for_people(rows: Sequence[Row]) -> list[Row]:
    return [
        row
        | {
            "batches": f"{row['batches']:,}",
            "rows": f"{row['rows']:,}",
            "rate": f"{row['rows_per_second']:,.0f}",
            "lag": None if row["lag"] is None else f"{row['lag']:,}",
            "batch_time": None if row["batch_seconds"] is None else f"{row['batch_seconds']:.2f} s",
            "late": f"{row['late']:,}" if row["late"] else None,
            "malformed": f"{row['malformed']:,}" if row["malformed"] else None,
        }
        for row in rows
    ]


def line(row: Row) -> str:
    """One query on one line, for logs."""
    text = f"{row['query']}: {row['state']}, {row['rows']} rows, {row['rate']}/s"
    if row["lag"] is not None:
        text += f", lag {row['lag']}"
    if row["batch_time"] is not None:
        text += f", batch {row['batch_time']}"
    if row["late"]:
        text += f", {row['late']} late"
    if row["malformed"]:
        text += f", {row['malformed']} malformed"
    return f"{text}: {row['problem']}" if row["problem"] else text


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

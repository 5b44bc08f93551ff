"""Tables for people, documents for programs."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from headrace.cli.common.output import Column, cell, emit_rows, number, plural, size_text, table_lines, write_out

COLUMNS = [Column("name", "NAME"), number("count", "COUNT"), Column("more", "MORE", wide=True)]
ROWS = [
    {"name": "a", "count": 5, "more": [1, 2], "hidden": 1},
    {"name": "longer", "count": 12345, "more": None, "hidden": 2},
]


def test_tables_are_aligned_without_trailing_blanks() -> None:
    assert table_lines(ROWS, COLUMNS) == [
        "NAME    COUNT  MORE",
        "a           5  1,2",
        "longer  12345  -",
    ]


def test_wide_columns_need_wide(capsys: pytest.CaptureFixture[str]) -> None:
    emit_rows(ROWS, COLUMNS, "table")
    assert capsys.readouterr().out.splitlines()[0] == "NAME    COUNT"
    emit_rows(ROWS, COLUMNS, "wide")
    assert capsys.readouterr().out.splitlines()[0] == "NAME    COUNT  MORE"


def test_programs_get_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    emit_rows(ROWS, COLUMNS, "json")
    assert json.loads(capsys.readouterr().out) == ROWS
    emit_rows(ROWS, COLUMNS, "jsonl")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS
    emit_rows(ROWS, COLUMNS, "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == ROWS


def test_nothing_is_a_note_for_people_and_an_empty_list_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    emit_rows([], COLUMNS, "table", "None here.")
    assert capsys.readouterr() == ("", "None here.\n")
    emit_rows([], COLUMNS, "json", "None here.")
    assert capsys.readouterr() == ("[]\n", "")


def test_values_as_people_read_them() -> None:
    values: list[object] = [None, "", [], True, False, 0, {"a": 1}, 1234.5]
    assert [cell(value) for value in values] == ["-", "-", "-", "yes", "no", "0", "a=1", "1,234.50"]
    sizes = [0, 1023, 1024, 5 * 1024**4, -1]
    assert [size_text(size) for size in sizes] == ["0 B", "1023 B", "1.0 KiB", "5.0 TiB", "-"]
    assert (plural(1, "topic"), plural(2000, "topic")) == ("1 topic", "2,000 topics")


class ShortWrites(io.RawIOBase):
    """A pipe without a buffer over it: it takes what fits."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.taken.append(bytes(data[:3]))
        return len(self.taken[-1])


def test_a_pipe_that_takes_a_part_gets_the_rest_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with PYTHONUNBUFFERED. The rest was lost, and with it the error that ends `consume | head`."""
    pipe = ShortWrites()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=pipe))
    write_out(b"0123456789")
    assert pipe.taken == [b"012", b"345", b"678", b"9"]

"""Tables for people, documents for programs."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from headrace.cli.common import output
from headrace.cli.common.fitting import shortened
from headrace.cli.common.output import (
    Column,
    cell,
    count,
    count_text,
    duration_text,
    elapsed,
    emit_rows,
    number,
    plural,
    size_text,
    table_lines,
    write_out,
)

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
    assert [count_text(value) for value in (1234, 1234.0, 12.5, 1e7)] == ["1,234", "1,234", "12.5", "10,000,000"]
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


GROUP_COLUMNS = (
    Column("group", "GROUP"),
    Column("topic", "TOPIC"),
    number("partition", "PARTITION"),
    number("offset", "CURRENT-OFFSET"),
    number("end", "LOG-END-OFFSET"),
    Column("host", "HOST"),
)
GROUP_ROW = {
    "group": "billing-service-in-production",
    "topic": "a-rather-long-topic-name-for-orders-of-customers",
    "partition": 2,
    "offset": 500,
    "end": 1_234_567_890,
    "host": "127.0.0.1",
}


@pytest.mark.parametrize("width", [40, 60, 80, 100, 150, 200])
def test_a_table_fits_its_terminal(width: int) -> None:
    lines = table_lines([GROUP_ROW], GROUP_COLUMNS, limit=width)
    assert max(len(line) for line in lines) <= width
    assert lines[1].startswith("billin")
    assert width < 60 or "500" in lines[1]


def test_text_is_shortened_before_columns_go_and_the_first_column_last() -> None:
    (_, row) = table_lines([GROUP_ROW], GROUP_COLUMNS, limit=118)
    assert row.startswith("billing-service-in-production  a-rather-long-to…ers-of-customers  ")
    assert row.endswith("127.0.0.1")
    (heading, row) = table_lines([GROUP_ROW], GROUP_COLUMNS, limit=82)
    assert row.startswith("billing…uction  a-rath…omers  ")
    (heading, row) = table_lines([GROUP_ROW], GROUP_COLUMNS, limit=70)
    assert "HOST" not in heading
    assert row.startswith("billin…uction  a-rath…omers  ")


def test_names_that_begin_alike_stay_different() -> None:
    names = [f"the-department-of-customer-relations.orders-and-returns.{end}" for end in ("v1", "v2")]
    first, second = (
        row.split()[0] for row in table_lines([{"name": name} for name in names], COLUMNS[:1], limit=40)[1:]
    )
    assert (len(first), len(second)) == (40, 40)
    assert first != second
    assert shortened("a sentence is cut at its end", 20) == "a sentence is cut a…"


def test_numbers_are_never_shortened() -> None:
    for width in range(10, 200):
        (_, row) = table_lines([GROUP_ROW], GROUP_COLUMNS, limit=width)
        assert "1234567890" in row or "1234" not in row


def test_what_does_not_fit_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 70)
    emit_rows([GROUP_ROW], GROUP_COLUMNS, "table")
    assert "No room for HOST: --format wide" in capsys.readouterr().err
    emit_rows([GROUP_ROW], GROUP_COLUMNS, "wide")
    assert capsys.readouterr().err == ""


def test_an_important_column_is_left_out_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`group describe` has offsets before the lag, and left the lag out on 60 columns."""
    monkeypatch.setattr(output, "terminal_width", lambda: 60)
    columns = (*GROUP_COLUMNS, count("lag", "LAG")._replace(important=True))
    emit_rows([GROUP_ROW | {"lag": 77}], columns, "table")
    printed = capsys.readouterr()
    assert "LAG" in printed.out
    assert max(map(len, printed.out.splitlines())) <= 60
    assert "No room for LOG-END-OFFSET, HOST: --format wide" in printed.err


def test_columns_without_values_need_no_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty group has no members, and `group describe` missed room for them."""
    monkeypatch.setattr(output, "terminal_width", lambda: 70)
    emit_rows([GROUP_ROW | {GROUP_COLUMNS[-1].key: None}] * 2, GROUP_COLUMNS, "table")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.04, "40ms"),
        (3.2, "3.2s"),
        (5.0, "5s"),
        (59.4, "59s"),
        (65, "1m 5s"),
        (120, "2m"),
        (8_040, "2h 14m"),
        (7_200, "2h"),
        (183_600, "2d 3h"),
        (94_608_000, "3y"),
        (63_072_000_000, "2,000y"),
    ],
)
def test_durations_as_people_read_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_counts_have_thousands_and_ids_do_not() -> None:
    rows = [{"lag": 1234567, "offset": 1234567, "age": 8040.0}]
    columns = [count("lag", "LAG"), number("offset", "OFFSET"), elapsed("age", "AGE")]
    assert table_lines(rows, columns)[1].split("  ") == ["1,234,567", "1234567", "2h 14m"]
    assert table_lines([{"lag": None, "age": None}], columns)[1].split() == ["-", "-", "-"]

"""Rows of a table sink, with SQLite and no broker."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headrace.connect.api import SinkRecord
from headrace.connect.definition import load
from headrace.connect.tables.sink import TableSink
from headrace.model.topics import TopicPartition

PLACE = TopicPartition("items", 0)


def write(path: Path, columns: dict[str, str], *records: tuple[bytes | None, bytes | None]) -> None:
    """One run of the sink."""
    config = {"connection": f"sqlite:{path}", "key": ["id"], "columns": columns}
    connector = load({"connector": "table-sink", "topics": ["items"], "config": config}, "kept").connector
    assert isinstance(connector, TableSink)
    task = connector.open("0", [PLACE], {})
    start = task.positions()
    assert start is not None
    first = start.get(PLACE, 0)
    rows = [SinkRecord("items", 0, first + n, 0, key, value, ()) for n, (key, value) in enumerate(records)]
    task.write(rows, {PLACE: first + len(rows)})
    task.close()


def found(path: Path, query: str = "SELECT * FROM items ORDER BY id") -> list[Any]:
    with sqlite3.connect(path) as database:
        return database.execute(query).fetchall()


def test_plain_keys_of_a_text_column_are_texts(tmp_path: Path) -> None:
    """Also where they look like numbers."""
    keys = (b"007", b"1.1", b"1.10", b"1e3", b"NaN", b"true", b'"1.2"', b'{"id": "1.3"}')
    write(tmp_path / "t", {"id": "text", "n": "integer"}, *((key, b'{"n": 1}') for key in keys))
    wanted = ["007", "1.1", "1.10", "1.2", "1.3", "1e3", "NaN", "true"]
    assert [one for one, _ in found(tmp_path / "t")] == wanted
    write(tmp_path / "t", {"id": "text", "n": "integer"}, (b"1.10", None))
    assert [one for one, _ in found(tmp_path / "t")] == [one for one in wanted if one != "1.10"]


@pytest.mark.parametrize("key", [b"0.12345678901234567890", b'{"id": 0.12345678901234567890}'])
def test_a_key_keeps_all_of_its_digits(tmp_path: Path, key: bytes) -> None:
    with sqlite3.connect(tmp_path / "t") as database:
        database.execute("CREATE TABLE items (id TEXT PRIMARY KEY, n INTEGER)")
    write(tmp_path / "t", {"id": "decimal", "n": "integer"}, (key, b'{"n": 1}'))
    assert found(tmp_path / "t") == [("0.12345678901234567890", 1)]


def test_a_table_has_the_declared_types_in_later_runs_too(tmp_path: Path) -> None:
    """SQLite itself knows no types of columns."""
    columns = {"id": "integer", "data": "bytes"}
    for number in (b"1", b"2"):
        write(tmp_path / "t", columns, (number, b'{"data": "AP8="}'))
    assert found(tmp_path / "t") == [(1, b"\x00\xff"), (2, b"\x00\xff")]

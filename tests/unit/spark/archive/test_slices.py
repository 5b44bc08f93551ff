"""Which archived records a slice means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.spark.archive.errors import ArchiveError
from headrace.spark.archive.manifest import ArchivedRange, DataFile
from headrace.spark.archive.slices import Slice, parse_condition
from headrace.spark.archive.store import ArchiveStore
from headrace.spark.arrow.columns import ALL_COLUMNS, arrow_schema

ROWS = [
    (b"ann", b'{"total": 5, "by": {"card": "visa"}}', [("src", b"shop")]),
    (b"bob", b'{"total": 100, "by": {"card": "amex"}}', None),
    (None, b"no json", [("src", b"x"), ("src", b"mail")]),
    (b"ann", None, [("src", None)]),
    (b"3", b'{"total": "20"}', []),
]


def table() -> pa.Table:
    rows: list[dict[str, Any]] = [
        {
            "key": key,
            "value": value,
            "topic": "t",
            "partition": 0,
            "offset": 10 + index,
            "timestamp": index * 1_000_000,
            "timestampType": 0,
            "headers": headers and [{"key": name, "value": one} for name, one in headers],
        }
        for index, (key, value, headers) in enumerate(ROWS)
    ]
    return pa.Table.from_pylist(rows, arrow_schema(ALL_COLUMNS))


def offsets(wanted: Slice) -> list[int]:
    return [int(one) - 10 for one in wanted.chooser()(table()).column("offset").to_pylist()]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("key=ann", [0, 3]),
        ("key!=ann", [1, 4]),
        ("key=3.0", [4]),
        ("value~json", [2]),
        ("value.total>=20", [1, 4]),
        ("value.total<20", [0]),
        ("value.by.card = visa", [0]),
        ("value.by.card!=visa", [1]),
        ('value.by~"amex"', [1]),
        ("header.src=mail", [2]),
        ("header.src!=mail", [0]),
        ("offset>12", [3, 4]),
        ("partition=0", [0, 1, 2, 3, 4]),
    ],
)
def test_conditions(condition: str, expected: list[int]) -> None:
    assert offsets(Slice("t", where=(parse_condition(condition),))) == expected


@pytest.mark.parametrize("text", ["key", "=5", "topic=t", "header=x", "key.a=1", "value.total=>"])
def test_what_is_no_condition(text: str) -> None:
    if text.endswith("=>"):
        assert parse_condition(text).value == ">"
        return
    with pytest.raises(ValueError):
        parse_condition(text)


def test_times_offsets_and_keys() -> None:
    assert offsets(Slice("t", start_ms=1000, end_ms=3000)) == [1, 2]
    assert offsets(Slice("t", start_offset=11, end_offset=13)) == [1, 2]
    assert offsets(Slice("t", keys=("ann", "3"))) == [0, 3, 4]
    assert offsets(Slice("t", start_ms=10_000_000)) == []


def test_a_function_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "keep.py"
    path.write_text("def odd(rows):\n    return [one % 2 for one in rows.column('offset').to_pylist()]\n")
    assert offsets(Slice("t", start_offset=11, function=f"{path}:odd")) == [1, 3]
    for wrong in (f"{path}:even", f"{tmp_path}/none.py:odd", "odd"):
        with pytest.raises(ArchiveError):
            offsets(Slice("t", function=wrong))
    path.write_text("def odd(rows):\n    return [True]\n")
    with pytest.raises(ArchiveError, match="1 answers for 5 rows"):
        offsets(Slice("t", function=f"{path}:odd"))


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def odd(rows):\n    return 1 / 0\n", r"keep\.py:2: ZeroDivisionError: division by zero\.$"),
        ("def odd(rows):\n    return None\n", r"keep\.py: TypeError: .* not iterable\.$"),
        ("import nothing_like_it\n", r"keep\.py:1: ModuleNotFoundError: No module named 'nothing_like_it'\.$"),
        ("\ndef odd(rows:\n", r"keep\.py:2: SyntaxError: .*\.$"),
    ],
)
def test_a_function_that_fails_is_said_with_its_line(tmp_path: Path, code: str, told: str) -> None:
    path = tmp_path / "keep.py"
    path.write_text(code)
    with pytest.raises(ArchiveError, match=told):
        offsets(Slice("t", function=f"{path}:odd"))


def test_an_address_without_a_folder_is_said() -> None:
    with pytest.raises(ArchiveError, match="names no bucket or folder"):
        ArchiveStore.open("s3://")


def test_ranges_without_any_of_them_are_left_alone() -> None:
    file = DataFile("", "", 10, 1, "", 100, 199, 5_000, 6_000)
    one = ArchivedRange("t", 3, 100, 200, rows=10, files=(file,))
    assert all(
        wanted.may_have(one)
        for wanted in (
            Slice("t"),
            Slice("t", (1, 3)),
            Slice("t", start_offset=199, end_offset=500),
            Slice("t", start_ms=6_000),
            Slice("t", end_ms=5_001),
        )
    )
    assert not any(
        wanted.may_have(one)
        for wanted in (
            Slice("other"),
            Slice("t", (1,)),
            Slice("t", start_offset=200),
            Slice("t", end_offset=100),
            Slice("t", start_ms=6_001),
            Slice("t", end_ms=5_000),
        )
    )


@pytest.mark.parametrize(
    ("condition", "message", "advice"),
    [
        ("value.totl>5", "has the field value.totl", "value.by, value.total"),
        ("value.by.crad=visa", "has the field value.by.crad", "value.by.card"),
        ("value.buy.card=visa", "has the field value.buy.card", "value.by, value.total"),
        ("header.source=shop", "has the field header.source", "header.src"),
    ],
)
def test_a_field_that_no_record_has_is_an_error(condition: str, message: str, advice: str) -> None:
    chooser = Slice("t", where=(parse_condition(condition),)).chooser()
    assert chooser(table()).num_rows == 0
    with pytest.raises(ArchiveError, match=message) as found:
        chooser.refuse_unknown_fields()
    assert found.value.advice == f"One of them has {advice}."


def test_a_field_that_only_some_records_have_is_accepted() -> None:
    chooser = Slice("t", where=(parse_condition("value.total=7"), parse_condition("key=x"))).chooser()
    assert chooser(table().slice(2)).num_rows == chooser(table()).num_rows == 0
    chooser.refuse_unknown_fields()

"""Records in JSON: what `consume --format jsonl` prints, `produce --format jsonl` reads back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.common.failure import CommandError
from headrace.cli.common.fitting import columns_of
from headrace.cli.topic.record_format import chosen_format
from headrace.cli.topic.record_input import JsonRules
from headrace.records.builder import NewRecord
from headrace.records.reader import Record

maybe_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
header_names = st.text(max_size=10)


@given(
    value=maybe_bytes,
    key=maybe_bytes,
    timestamp=st.integers(-1, (1 << 63) - 1),
    partition=st.integers(0, 1000),
    headers=st.lists(st.tuples(header_names, maybe_bytes), max_size=3),
)
def test_out_and_in_again(
    value: bytes | None,
    key: bytes | None,
    timestamp: int,
    partition: int,
    headers: list[tuple[str, bytes | None]],
) -> None:
    line = chosen_format("jsonl", None, False)("t", partition, Record(7, timestamp, key, value, tuple(headers)))
    assert line.count(b"\n") == 1
    expected = NewRecord(value, key, timestamp, tuple(headers))
    assert JsonRules().placed(line.rstrip(b"\n"), 5) == (partition, expected)


def test_what_people_write() -> None:
    line = b'{"key": "alice", "value": {"total": 7}, "headers": {"origin": "web", "flag": null}}'
    expected = NewRecord(b'{"total":7}', b"alice", 5, (("origin", b"web"), ("flag", None)))
    assert JsonRules().placed(line, 5) == (None, expected)
    assert JsonRules(timestamp_ms=9).placed(b'{"value": "v", "timestamp_ms": 3}', 5)[1].timestamp == 9
    assert JsonRules(repartition=True).placed(b'{"value": "v", "partition": 3}', 5)[0] is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not valid JSON"),
        ('{"value": "a"} {"value": "b"}', "not valid JSON"),
        ("[1]", "not a JSON object"),
        ("{}", 'no "value"'),
        ('{"value": 5}', "value is not text"),
        ('{"valu": "v", "value": "v"}', "'valu' is not a field"),
        ('{"value": "v", "partition": -1}', "partition is not a valid number"),
        ('{"value": "v", "partition": true}', "partition is not a valid number"),
        ('{"value": "v", "timestamp_ms": "now"}', "timestamp_ms is not a valid number"),
        ('{"value_base64": "?"}', "not valid base64"),
        ('{"value_base64": 5}', "not valid base64"),
        ('{"value": "v", "value_base64": "dg=="}', "both value and value_base64"),
        ('{"value": "v", "headers": "h"}', "neither a list nor an object"),
        ('{"value": "v", "headers": [{"value": "h"}]}', "a header has no key"),
        ('{"value": "\\ud800"}', "not valid Unicode"),
    ],
)
def test_mistakes(line: str, problem: str) -> None:
    with pytest.raises(CommandError, match="not a record in JSON") as found:
        JsonRules().placed(line.encode(), 0)
    assert problem in found.value.message


@pytest.mark.parametrize(
    ("record", "end"),
    [
        (Record(3, 1714564800000, b"k", b"v", ()), "   3  2024-05-01T12:00:00.000Z  k                 v"),
        (Record(3, -1, None, None, ()), "   3  -                         -                 (tombstone)"),
        (Record(3, -1, b"k" * 20, b"a\x1b[2J\nb", ()), "kkkkkkkkkkkkkkk…  a\\x1b[2J\\nb"),
    ],
)
def test_a_table(record: Record, end: str) -> None:
    line = chosen_format("table", None, False)("t", 1, record).decode()
    assert line.rstrip("\n").endswith(end)
    assert line.count("\n") == 1


def test_wide_characters_fit_too() -> None:
    """Each takes two columns of a terminal."""
    record = Record(1, 0, ("鍵" * 20).encode(), ("日本🐞" * 40).encode(), ())
    line = chosen_format("table", None, False)("t", 0, record).decode()
    assert columns_of(line.rstrip("\n")) in (79, 80)
    assert "  " + "鍵" * 7 + "…   日本" in line


def test_columns_for_programs_are_one_line_each() -> None:
    record = Record(3, 0, b"a\tb", b"c\nd\x1b[2J", (("h", b"\r"),))
    line = chosen_format("wide", None, False)("t", 1, record)
    assert line == b"1\t3\t1970-01-01T00:00:00.000Z\ta\\tb\tc\\nd\\x1b[2J\th=\\r\n"


def test_a_table_fits_its_terminal() -> None:
    record = Record(1, 0, b"key", json.dumps({"number": list(range(100))}).encode(), ())
    for width in (80, 200):
        line = chosen_format("table", None, False, width=width)("t", 0, record).decode()
        assert len(line) == width + 1
        assert line.endswith("…\n")

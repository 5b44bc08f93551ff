"""The messages of pgoutput, byte by byte, and values as JSON."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.postgres import values
from headrace.connect.postgres.pgoutput import (
    UNCHANGED,
    BeginMessage,
    ChangeMessage,
    CommitMessage,
    MalformedMessage,
    RelationColumn,
    RelationMessage,
    TruncateMessage,
    decode,
    lsn_text,
    parse_lsn,
)

ROW = b"\x00\x03t\x00\x00\x00\x011nu"


def test_every_message() -> None:
    assert decode(b"B" + struct.pack(">qqi", 5, 1_000_000, 7)) == BeginMessage(5, 946_684_801_000, 7)
    assert decode(b"C" + struct.pack(">bqqq", 0, 5, 9, 0)) == CommitMessage(5, 9)
    relation = b"R\x00\x00\x00\x2apublic\x00t\x00d\x00\x02\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff\x00n\x00"
    assert decode(relation + struct.pack(">ii", 25, -1)) == RelationMessage(
        42, "public", "t", "d", (RelationColumn("id", 23, True), RelationColumn("n", 25, False))
    )
    row = (b"1", None, UNCHANGED)
    assert decode(b"I\x00\x00\x00\x2aN" + ROW) == ChangeMessage("insert", 42, None, False, row)
    assert decode(b"U\x00\x00\x00\x2aN" + ROW) == ChangeMessage("update", 42, None, False, row)
    assert decode(b"U\x00\x00\x00\x2aK" + ROW + b"N" + ROW) == ChangeMessage("update", 42, row, True, row)
    assert decode(b"U\x00\x00\x00\x2aO" + ROW + b"N" + ROW) == ChangeMessage("update", 42, row, False, row)
    assert decode(b"D\x00\x00\x00\x2aK" + ROW) == ChangeMessage("delete", 42, row, True, None)
    assert decode(b"T\x00\x00\x00\x02\x00\x00\x00\x00\x01\x00\x00\x00\x02") == TruncateMessage((1, 2))
    assert decode(b"Y says nothing") is None


@given(st.sampled_from([b"B", b"C", b"R", b"I", b"U", b"D", b"T"]), st.binary(max_size=40))
def test_what_is_cut_or_wrong_is_malformed_and_nothing_else(kind: bytes, rest: bytes) -> None:
    try:
        decode(kind + rest)
    except MalformedMessage:
        pass


def test_a_row_that_ends_in_the_middle_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        decode(b"I\x00\x00\x00\x2aN\x00\x01t\x00\x00\x00\x09short")


@pytest.mark.parametrize(
    ("type_oid", "text", "expected"),
    [
        (values.INT8, b"-9223372036854775808", "-9223372036854775808"),
        (values.NUMERIC, b"12345678901234567890.10", "12345678901234567890.10"),
        (values.NUMERIC, b"NaN", '"NaN"'),
        (values.FLOAT8, b"1e+300", "1e+300"),
        (values.FLOAT8, b"-Infinity", '"-Infinity"'),
        (values.BOOL, b"t", "true"),
        (values.BOOL, b"f", "false"),
        (values.BYTEA, b"\\x00ff", '"AP8="'),
        (values.TIMESTAMPTZ, b"2026-01-31 12:00:00.5+00", '"2026-01-31T12:00:00.5Z"'),
        (values.TIMESTAMP, b"infinity", '"infinity"'),
        (values.DATE, b"2026-01-31", '"2026-01-31"'),
        (values.JSONB, b'{"a": [1]}', '{"a": [1]}'),
        (values.TEXT, 'a "b" \u00e4\n'.encode(), '"a \\"b\\" \u00e4\\n"'),
        (600, b"(1,2)", '"(1,2)"'),
    ],
)
def test_values_as_json(type_oid: int, text: bytes, expected: str) -> None:
    found = values.json_value(type_oid, text)
    assert found == expected
    json.loads(found)


def test_rows_leave_out_what_was_not_sent() -> None:
    row = values.json_object([("a", values.INT4, b"1"), ("b", values.TEXT, UNCHANGED), ("c", values.TEXT, None)])
    assert json.loads(row) == {"a": 1, "c": None}


@given(st.integers(0, 2**63 - 1))
def test_lsns_are_read_as_they_are_written(lsn: int) -> None:
    assert parse_lsn(lsn_text(lsn)) == lsn

"""How consume prints records."""

from __future__ import annotations

import json

import pytest

from headrace.cli.topic.record_format import chosen_format, time_text
from headrace.records.reader import Record
from headrace.spark.arrow.columns import ALL_COLUMNS

PLAIN = Record(7, 1_700_000_000_123, b"key", b"value", (("a", b"1"), ("b", None)))
EMPTY = Record(8, -1, None, None, ())
BINARY = Record(9, 0, b"\xff\x00", b"\xfe", (("h", b"\xff"),))


def printed(record: Record, format: str = "value", template: str | None = None, in_hex: bool = False) -> bytes:
    return chosen_format(format, template, in_hex)("topic", 3, record)


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("%t/%p/%o", b"topic/3/7"),
        (r"%k=%s\n", b"key=value\n"),
        ("%K %S %T", b"3 5 1700000000123"),
        ("%h", b"a=1,b=NULL"),
        (r"100%%\t\\\x41\0", b"100%\t\\A\0"),
        ("é%s", "évalue".encode()),
        ("", b""),
    ],
)
def test_templates_are_kcats(template: str, wanted: bytes) -> None:
    assert printed(PLAIN, template=template) == wanted


def test_nulls_in_templates() -> None:
    assert printed(EMPTY, template="%k|%K|%s|%S|%h|%T") == b"|-1||-1||-1"


@pytest.mark.parametrize("template", ["%q", r"\q", "100%", "end\\"])
def test_a_template_that_means_nothing(template: str) -> None:
    with pytest.raises(ValueError, match=r"not a known|lone"):
        printed(PLAIN, template=template)


def test_values_columns_and_hexadecimal() -> None:
    assert printed(PLAIN) == b"value\n"
    assert printed(EMPTY) == b"\n"
    assert printed(BINARY) == b"\xfe\n"
    assert printed(BINARY, in_hex=True) == b"fe\n"
    assert printed(PLAIN, "wide") == b"3\t7\t2023-11-14T22:13:20.123Z\tkey\tvalue\ta=1,b=NULL\n"
    assert printed(EMPTY, "wide") == b"3\t8\t-\tNULL\tNULL\n"


def test_json_has_stable_keys_and_survives_any_bytes() -> None:
    assert json.loads(printed(PLAIN, "json")) == {
        "topic": "topic",
        "partition": 3,
        "offset": 7,
        "timestamp_ms": 1_700_000_000_123,
        "key": "key",
        "value": "value",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }
    binary = json.loads(printed(BINARY, "jsonl"))
    assert (binary["key_base64"], binary["value_base64"]) == ("/wA=", "/g==")
    assert binary["headers"] == [{"key": "h", "value_base64": "/w=="}]
    assert json.loads(printed(BINARY, "json", in_hex=True))["key"] == "ff00"
    # The names are those of the columns of the Spark format; only the time is a number here, and says so.
    found = json.loads(printed(PLAIN, "json"))
    assert set(found) - {"timestamp_ms"} <= set(ALL_COLUMNS)
    assert {name for header in found["headers"] for name in header} == {"key", "value"}
    assert printed(PLAIN, "json").count(b"\n") == 1


def test_times() -> None:
    assert time_text(0) == "1970-01-01T00:00:00.000Z"
    assert time_text(-1) == "-"


def test_a_marker_stands_for_null() -> None:
    assert chosen_format("value", r"%k|%s|%K", False, b"<null>")("topic", 0, EMPTY) == b"<null>|<null>|-1"
    assert chosen_format("value", None, True, b"<null>")("topic", 0, EMPTY) == b"<null>\n"
    assert json.loads(chosen_format("json", None, False, b"<null>")("topic", 0, EMPTY))["key"] is None

"""PostgreSQL's text of a value as JSON, by the type's oid. Rows and keys become JSON objects, column by column.

Numbers stay as they are written, to the last digit. Times become ISO 8601 (the connections use UTC and ISO dates),
bytea becomes base64, json is embedded as it is. What has no counterpart (arrays, ranges, ...) is its text; so are
NaN and the infinities.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable

from headrace.connect.postgres.pgoutput import ColumnText, Unsent
from headrace.connect.schema import ColumnType

BOOL, BYTEA, INT8, INT2, INT4, JSON, FLOAT4, FLOAT8 = 16, 17, 20, 21, 23, 114, 700, 701
DATE, TIME, TIMESTAMP, TIMESTAMPTZ, NUMERIC, JSONB, OID = 1082, 1083, 1114, 1184, 1700, 3802, 26
TEXT, BPCHAR, VARCHAR = 25, 1042, 1043

TYPES: dict[int, ColumnType] = {
    BOOL: "boolean",
    BYTEA: "bytes",
    INT8: "integer",
    INT2: "integer",
    INT4: "integer",
    OID: "integer",
    FLOAT4: "float",
    FLOAT8: "float",
    NUMERIC: "decimal",
    DATE: "date",
    TIME: "time",
    TIMESTAMP: "timestamp",
    TIMESTAMPTZ: "timestamptz",
    JSON: "json",
    JSONB: "json",
    TEXT: "text",
    BPCHAR: "text",
    VARCHAR: "text",
}


def column_type(type_oid: int) -> ColumnType:
    return TYPES.get(type_oid, "text")


def json_object(columns: Iterable[tuple[str, int, ColumnText]]) -> bytes:
    """A JSON object of (name, type, text); values that were not sent are omitted."""
    parts = [
        f"{json.dumps(name, ensure_ascii=False)}:{json_value(type_oid, text)}"
        for name, type_oid, text in columns
        if not isinstance(text, Unsent)
    ]
    return ("{" + ",".join(parts) + "}").encode()


def json_value(type_oid: int, text: bytes | None) -> str:
    if text is None:
        return "null"
    return _FORMS.get(type_oid, _quoted)(text.decode())


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _as_it_is(text: str) -> str:
    return text


def _boolean(text: str) -> str:
    return "true" if text == "t" else "false"


def _number(text: str) -> str:
    return text if text[-1].isdigit() else _quoted(text)  # NaN, Infinity


def _float(text: str) -> str:
    """A float as JSON: a whole number of JSON has no negative zero."""
    return "-0.0" if text == "-0" else _number(text)


def _bytes(text: str) -> str:
    return _quoted(base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode())


def _timestamp(text: str) -> str:
    return _quoted(text.replace(" ", "T", 1) if text[0].isdigit() else text)


def _timestamptz(text: str) -> str:
    if text.endswith("+00"):
        text = text.removesuffix("+00") + "Z"
    return _timestamp(text)


_FORMS: dict[int, Callable[[str], str]] = {
    BOOL: _boolean,
    BYTEA: _bytes,
    INT2: _as_it_is,
    INT4: _as_it_is,
    INT8: _as_it_is,
    OID: _as_it_is,
    FLOAT4: _float,
    FLOAT8: _float,
    NUMERIC: _number,
    JSON: _as_it_is,
    JSONB: _as_it_is,
    TIMESTAMP: _timestamp,
    TIMESTAMPTZ: _timestamptz,
}

"""JSON and the values of a database's driver, both ways."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from headrace.connect.schema import ColumnType


def json_object(columns: Iterable[tuple[str, Any]]) -> bytes:
    """A JSON object of names and values; numbers keep all of their digits."""
    return ("{" + ",".join(f"{json.dumps(name)}:{json_value(value)}" for name, value in columns) + "}").encode()


def json_value(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else f'"{value}"'
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    return json.dumps(value, ensure_ascii=False, default=_as_json)


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    return value if isinstance(value, bool | int | float | str | None) else str(value)


_BYTES = "base64"


def position_value(value: Any) -> Any:
    """A value as the JSON of a position has it."""
    if isinstance(value, bytes | memoryview):
        return {_BYTES: base64.b64encode(value).decode()}
    return _as_json(value)


def parameter_of(stored: Any) -> Any:
    """A stored position as the parameter that a database compares with the value it was made from."""
    return base64.b64decode(stored[_BYTES]) if isinstance(stored, dict) else stored


def parse_row(data: bytes) -> dict[str, Any]:
    """A JSON object; `ValueError` for anything else."""
    found = json.loads(data, parse_float=Decimal)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def column_value(value: Any, type: ColumnType | None) -> Any:
    """The value that a column of that type stores for a value from JSON."""
    if value is None:
        return None
    if type == "bytes" and isinstance(value, str):
        return base64.b64decode(value)
    if type == "float" and isinstance(value, Decimal) and not value:
        return float(value)  # a Decimal in the database has no negative zero
    if type == "text" and not isinstance(value, str | dict | list):
        return json_value(value)
    if type == "json" or isinstance(value, dict | list):
        return _json_text(value)
    return value


def _json_text(value: Any) -> str:
    """The text of `json.dumps`, with all digits of numbers."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_json_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json_text, value)) + "]"
    return json_value(value)

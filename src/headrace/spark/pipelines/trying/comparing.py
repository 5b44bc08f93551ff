"""Whether a view has the rows that a test expects, in any order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from headrace.spark.pipelines.nearest import suggestion

DIGITS = 12
"""To which numbers with a fraction must agree."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """How a view is not what was expected."""

    view: str
    missing: tuple[Row, ...] = ()
    unexpected: tuple[Row, ...] = ()
    problem: str | None = None


def compare(view: str, columns: Sequence[str], rows: Sequence[Row], expected: Sequence[Row]) -> Difference | None:
    """Only columns that some expected row names count; all of them when no row is expected."""
    named = list(dict.fromkeys(name for row in expected for name in row))
    for name in named:
        if name not in columns:
            advice = suggestion(name, columns, f"It has {', '.join(columns)}.")
            return Difference(view, problem=f"there is no column {name}. {advice}")
    chosen = named or list(columns)
    found = Counter(_form(row, chosen) for row in rows)
    wanted = Counter(_form(row, chosen) for row in expected)
    if found == wanted:
        return None
    return Difference(view, _rows(wanted - found), _rows(found - wanted))


def _rows(forms: Counter[str]) -> tuple[Row, ...]:
    return tuple(json.loads(form) for form in sorted(forms.elements()))


def _form(row: Row, columns: Sequence[str]) -> str:
    return json.dumps({name: _value(row.get(name)) for name in columns}, ensure_ascii=False)


def _value(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.{DIGITS}g}")
    if isinstance(value, str):
        return _time_text(value)
    if isinstance(value, datetime):
        return _utc(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _value(value[name]) for name in sorted(value, key=str)}
    return [_value(one) for one in value] if isinstance(value, (list, tuple)) else value


def _time_text(text: str) -> str:
    """One form for all ways to write a time: in UTC, to the millisecond."""
    if len(text) < len("2026-01-31T12:00") or text[4:5] != "-" or text[10:11] not in ("T", " "):
        return text
    try:
        return _utc(datetime.fromisoformat(text))
    except ValueError:
        return text


def _utc(time: datetime) -> str:
    aware = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return aware.isoformat(timespec="milliseconds").replace("+00:00", "Z")

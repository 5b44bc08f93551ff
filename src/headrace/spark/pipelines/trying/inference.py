"""The format and schema of a topic, guessed from some of its records.

Values are JSON if at least half of them are objects, text if all are UTF-8, else raw. A field gets the narrowest
type that all its values have; one that is null in every record is a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

ENOUGH = 0.5
"""The share of records that must be JSON objects: the others go to the dead letters."""
MAX_BIGINT = 2**63 - 1
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

Type = str | tuple[str, Any] | None
"""A Spark type, ("array", type), ("struct", {name: type}), or None for null."""


@dataclass(frozen=True, slots=True)
class Guess:
    format: str
    fields: Mapping[str, Type]
    records: int
    malformed: int = 0

    @property
    def ddl(self) -> str:
        return ", ".join(f"{quoted(name)} {ddl_of(kind)}" for name, kind in self.fields.items())

    @property
    def event_time(self) -> str | None:
        """The first column that is a time."""
        return next((name for name, kind in self.fields.items() if kind == "timestamp"), None)


def guess(values: Sequence[bytes | None]) -> Guess:
    """Guess from the values; tombstones are ignored."""
    given = [value for value in values if value is not None]
    objects = [found for value in given if (found := _object(value)) is not None]
    if given and len(objects) >= ENOUGH * len(given):
        fields: dict[str, Type] = {}
        for one in objects:
            fields = _merged_fields(fields, {name: type_of(value) for name, value in one.items()})
        if fields:
            return Guess("json", fields, len(values), len(given) - len(objects))
    if given and all(map(_is_text, given)):
        return Guess("text", {"value": "string"}, len(values))
    return Guess("raw", {}, len(values))


def type_of(value: Any) -> Type:
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if abs(value) <= MAX_BIGINT else "string"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return _type_of_text(value)
    if isinstance(value, list):
        return ("array", _merged_all(map(type_of, value)))
    return ("struct", {name: type_of(inner) for name, inner in value.items()}) if value else "string"


def _type_of_text(text: str) -> str:
    for shape, kind, read in (
        (_TIME, "timestamp", datetime.fromisoformat),
        (_DATE, "date", date.fromisoformat),
    ):
        if shape.fullmatch(text):
            try:
                read(text)
            except ValueError:
                continue
            return kind
    return "string"


def merged(one: Type, other: Type) -> Type:
    if one is None or other is None or one == other:
        return other if one is None else one
    if {one, other} == {"bigint", "double"} if isinstance(one, str) and isinstance(other, str) else False:
        return "double"
    if isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0]:
        if one[0] == "array":
            return ("array", merged(one[1], other[1]))
        return ("struct", _merged_fields(one[1], other[1]))
    return "string"


def _merged_all(kinds: Iterable[Type]) -> Type:
    found: Type = None
    for kind in kinds:
        found = merged(found, kind)
    return found


def _merged_fields(one: Mapping[str, Type], other: Mapping[str, Type]) -> dict[str, Type]:
    return {name: merged(one.get(name), other.get(name)) for name in dict.fromkeys([*one, *other])}


def ddl_of(kind: Type) -> str:
    if kind is None:
        return "string"
    if isinstance(kind, str):
        return kind
    if kind[0] == "array":
        return f"array<{ddl_of(kind[1])}>"
    inner = ", ".join(f"{quoted(name)}: {ddl_of(one)}" for name, one in kind[1].items())
    return f"struct<{inner}>"


def quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(value)
    except ValueError:  # also what is not UTF-8
        return None
    return found if isinstance(found, dict) else None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True

"""How a line of input becomes a record: by a separator, or as the JSON that `consume --format jsonl` prints."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.cli.common.failure import CommandError
from headrace.client.producer import PlacedRecord
from headrace.records.builder import NewRecord

MAX_SHOWN = 60
LARGEST_TIMESTAMP_MS = (1 << 63) - 1
FIELDS = frozenset(
    {"topic", "partition", "offset", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers"}
)
"""The fields of a record in JSON. Its topic and offset are those of where it was read: they are not used."""


class LineReader(Protocol):
    def placed(self, line: bytes, now_ms: int) -> PlacedRecord: ...


@dataclass(frozen=True, slots=True)
class LineRules:
    """A line is a value, or a key and a value."""

    key: bytes | None = None
    key_delimiter: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    empty_is_null: bool = False
    timestamp_ms: int | None = None
    null_marker: bytes | None = None
    """A key or value that stands for null."""
    key_required: bool = False
    """A line without the delimiter is an error, not a record without a key."""

    def placed(self, line: bytes, now_ms: int) -> PlacedRecord:
        return None, self.record(line, now_ms)

    def record(self, line: bytes, now_ms: int) -> NewRecord:
        key = self.key
        value: bytes | None = line
        if self.key_delimiter is not None:
            before, found, after = line.partition(self.key_delimiter)
            if found:
                key, value = None if before == self.null_marker else before, after
            elif self.key_required:
                separator = self.key_delimiter.decode(errors="replace")
                raise CommandError(f"No key separator {separator!r} found in the line {shortened(line)}.")
        if (self.empty_is_null and not value) or value == self.null_marker:
            value = None
        return NewRecord(value, key, now_ms if self.timestamp_ms is None else self.timestamp_ms, self.headers)


@dataclass(frozen=True, slots=True)
class JsonRules:
    """Each line is a complete record."""

    repartition: bool = False
    """Whether the key decides where a record goes, even if the record names a partition."""
    timestamp_ms: int | None = None

    def placed(self, line: bytes, now_ms: int) -> PlacedRecord:
        try:
            found = _object(line)
            partition = _integer(found, "partition", 0, (1 << 31) - 1)
            timestamp = _integer(found, "timestamp_ms", -1, LARGEST_TIMESTAMP_MS)
            record = NewRecord(
                _data(found, "value"),
                _data(found, "key"),
                _first(self.timestamp_ms, timestamp, now_ms),
                _headers(found.get("headers")),
            )
        except ValueError as error:
            raise CommandError(f"This is not a record in JSON: {error}. The line is {shortened(line)}.") from None
        return None if self.repartition else partition, record


def shortened(line: bytes) -> str:
    text = line.decode(errors="replace")
    return repr(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…")


def _first(*candidates: int | None) -> int:
    return next(one for one in candidates if one is not None)


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"it is not valid JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    if unknown := sorted(set(found) - FIELDS):
        raise ValueError(f"{unknown[0]!r} is not a field of a record; those are {', '.join(sorted(FIELDS))}")
    if "value" not in found and "value_base64" not in found:
        raise ValueError('it has no "value"; write null for a tombstone')
    return found


def _integer(found: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    number = found.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ValueError(f"{name} is not a valid number: {number!r}")
    return number


def _data(found: Mapping[str, Any], name: str) -> bytes | None:
    """Text as it is, an object or a list as its JSON text, bytes that are not UTF-8 in base64."""
    encoded = found.get(f"{name}_base64")
    if encoded is not None:
        if found.get(name) is not None:
            raise ValueError(f"it has both {name} and {name}_base64")
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, binascii.Error):
            raise ValueError(f"{name}_base64 is not valid base64") from None
    content = found.get(name)
    if content is None:
        return None
    if isinstance(content, dict | list):
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    if not isinstance(content, str):
        raise ValueError(f'{name} is not text: write "{content}" in quotes')
    try:
        return content.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is not valid Unicode; give such bytes as {name}_base64") from None


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Headers from a list of names and values, or from an object, which is easier to write by hand."""
    if given is None:
        return ()
    if isinstance(given, dict):
        given = [{"key": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list):
        raise ValueError("headers is neither a list nor an object")
    headers = []
    for one in given:
        name = one.get("key", one.get("name")) if isinstance(one, dict) else None
        if not isinstance(name, str):
            raise ValueError(f"a header has no key: {one!r}")
        headers.append((name, _data(one, "value")))
    return tuple(headers)

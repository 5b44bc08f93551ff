r"""How a record is printed by `consume`: its value, a template, JSON, a table, or columns.

A template is kcat's: %t topic, %p partition, %o offset, %k key, %K its length, %s value, %S its length, %h headers
(name=value,...), %T timestamp in milliseconds, %% a percent sign; \n \t \r \\ and \xNN mean what they mean in C.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from headrace.cli.common.fitting import columns_of
from headrace.records.reader import Record

Format = Callable[[str, int, Record], bytes]
Show = Callable[[bytes | None], bytes]

_TOKENS = re.compile(r"%(.)|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def raw(data: bytes | None) -> bytes:
    return b"" if data is None else data


def hexadecimal(data: bytes | None) -> bytes:
    return b"" if data is None else data.hex().encode()


def marking(null: bytes, show: Show) -> Show:
    return lambda data: null if data is None else show(data)


def shown(show: Show, data: bytes | None) -> bytes:
    return b"NULL" if data is None else show(data)


def value_format(show: Show, newline: bytes = b"\n") -> Format:
    return lambda topic, partition, record: show(record.value) + newline


def template_format(template: str, show: Show) -> Format:
    """ValueError for a letter that means nothing."""
    parts: list[Callable[[str, int, Record], bytes]] = []
    position = 0
    while position < len(template):
        match = _TOKENS.match(template, position)
        if match is None:
            raise ValueError(f"the template ends with a lone {template[position]!r}")
        parts.append(_part(match[1], match[2], match[3], show))
        position = match.end()
    return lambda topic, partition, record: b"".join(part(topic, partition, record) for part in parts)


def _part(letter: str | None, escape: str | None, text: str | None, show: Show) -> Format:
    if letter is not None:
        return _field(letter, show)
    if escape is not None:
        constant = bytes([int(escape[1:], 16)]) if len(escape) == 3 else _ESCAPES.get(escape)
        if constant is None:
            raise ValueError(f"\\{escape} is not a known escape in a template")
    else:
        assert text is not None
        constant = text.encode()
    return lambda topic, partition, record: constant


def _field(letter: str, show: Show) -> Format:
    fields: dict[str, Format] = {
        "%": lambda topic, partition, record: b"%",
        "t": lambda topic, partition, record: topic.encode(),
        "p": lambda topic, partition, record: b"%d" % partition,
        "o": lambda topic, partition, record: b"%d" % record.offset,
        "k": lambda topic, partition, record: show(record.key),
        "K": lambda topic, partition, record: b"%d" % _length(record.key),
        "s": lambda topic, partition, record: show(record.value),
        "S": lambda topic, partition, record: b"%d" % _length(record.value),
        "T": lambda topic, partition, record: b"%d" % record.timestamp,
        "h": lambda topic, partition, record: _headers(record, show),
    }
    if letter not in fields:
        raise ValueError(f"%{letter} is not a known field in a template; use %{', %'.join(fields)}")
    return fields[letter]


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: Record, show: Show) -> bytes:
    return b",".join(name.encode() + b"=" + shown(show, value) for name, value in record.headers)


def wide_format(show: Show) -> Format:
    def columns(topic: str, partition: int, record: Record) -> bytes:
        parts = [b"%d" % partition, b"%d" % record.offset, time_text(record.timestamp).encode()]
        fields = (shown(show, record.key), shown(show, record.value), _headers(record, show))
        parts += [printable(field).encode() for field in fields]
        return b"\t".join(parts).rstrip(b"\t") + b"\n"

    return columns


KEY_WIDTH = 16
NULL_KEY, TOMBSTONE = "-", "(tombstone)"
_TABLE = "{:>4}  {:>8}  {:<24}  {}  {}"
TABLE_HEADING = (_TABLE.format("PART", "OFFSET", "TIMESTAMP", "KEY".ljust(KEY_WIDTH), "VALUE") + "\n").encode()


def table_format(show: Show, width: int) -> Format:
    """A line of `width` columns at most for each record: what is too long is cut and ends with an ellipsis."""

    def line(topic: str, partition: int, record: Record) -> bytes:
        key = NULL_KEY if record.key is None else printable(show(record.key))
        value = TOMBSTONE if record.value is None else printable(show(record.value))
        place = (partition, record.offset, time_text(record.timestamp))
        key = cut(key, KEY_WIDTH)
        key += " " * (KEY_WIDTH - columns_of(key))
        return (cut(_TABLE.format(*place, key, value).rstrip(), width) + "\n").encode()

    return line


def printable(data: bytes) -> str:
    """On one line, and without anything that a terminal would act on."""
    text = data.decode(errors="replace")
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def cut(text: str, width: int) -> str:
    """At most so many columns of a terminal."""
    if columns_of(text) <= width:
        return text
    taken = width - 1
    for place, one in enumerate(text):
        taken -= columns_of(one)
        if taken < 0:
            return text[:place] + "…"
    raise AssertionError


WIDE_HEADING = b"PARTITION\tOFFSET\tTIMESTAMP\tKEY\tVALUE\tHEADERS\n"


def time_text(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def json_format(show: Show) -> Format:
    def line(topic: str, partition: int, record: Record) -> bytes:
        return json.dumps(as_object(topic, partition, record, show), ensure_ascii=False).encode() + b"\n"

    return line


def as_object(topic: str, partition: int, record: Record, show: Show) -> dict[str, Any]:
    """Bytes that are not valid UTF-8 become base64, under a name that says so."""
    found: dict[str, Any] = {"topic": topic, "partition": partition, "offset": record.offset}
    found["timestamp_ms"] = record.timestamp
    for name, data in (("key", record.key), ("value", record.value)):
        found |= _bytes_pair(name, data, show)
    found["headers"] = [{"key": name, **_bytes_pair("value", value, show)} for name, value in record.headers]
    return found


def _bytes_pair(name: str, data: bytes | None, show: Show) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: show(data).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def yaml_format(show: Show) -> Format:
    from headrace.cli.common.output import yaml_text

    def document(topic: str, partition: int, record: Record) -> bytes:
        return b"---\n" + yaml_text(as_object(topic, partition, record, show)).encode()

    return document


def chosen_format(format: str, template: str | None, in_hex: bool, null: bytes = b"", width: int = 80) -> Format:
    """`width` is that of the terminal."""
    show = marking(null, hexadecimal if in_hex else raw)
    if template is not None:
        return template_format(template, show)
    if format in ("json", "jsonl"):
        return json_format(show)
    if format == "yaml":
        return yaml_format(show)
    if format == "table":
        return table_format(show, width)
    return wide_format(show) if format == "wide" else value_format(show)


def heading_of(format: str) -> bytes:
    return {"table": TABLE_HEADING, "wide": WIDE_HEADING}.get(format, b"")

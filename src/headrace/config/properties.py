"""Java's properties syntax, in which Kafka's configuration files are written.

A line is `key=value`, `key: value` or `key value`. `#` and `!` begin comment lines. A backslash at the end of a
line continues it, and the blanks that begin the next line are dropped; elsewhere it escapes:
`\\t \\n \\r \\f \\uXXXX`, and any other character stands for itself. The last of several lines with one key wins.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.config.setting import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        values[_unescape(key, number)] = _unescape(value, number)
    return values


def property_lines(text: str) -> dict[str, int]:
    """The number of the line that gives each setting its value."""
    return {_unescape(_split(line)[0], number): number for number, line in _logical_lines(text)}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blanks in front, continuations joined, with the number of their first line."""
    pending, first = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        if _continues(line):
            pending += line[:-1]
            # A lone backslash still makes the next line a continuation.
            pending = pending or " "
            continue
        yield first, (pending + line).lstrip(_BLANKS)
        pending = ""
    if pending.strip(_BLANKS):
        yield first, pending


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line):
        character = line[position]
        if character == "\\":
            position += 2
            continue
        if character in "=:" or character in _BLANKS:
            break
        position += 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            out.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            out.append(_code_point(text[position : position + 4], line_number))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)


def _code_point(digits: str, line_number: int) -> str:
    try:
        return chr(int(digits, 16)) if len(digits) == 4 else _malformed(line_number)
    except ValueError:
        return _malformed(line_number)


def _malformed(line_number: int) -> str:
    raise ConfigError(f"line {line_number}: \\u must be followed by four hexadecimal digits")

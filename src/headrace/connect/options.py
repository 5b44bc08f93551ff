"""The settings that a connector declares, and what a user gave for them: kinds, defaults, limits, meanings.

What is declared is checked before anything runs, and docs/connectors.md is written from it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

OptionKind = Literal["text", "whole number", "flag", "list", "mapping", "duration", "size"]
OptionValue = str | int | float | bool | tuple[str, ...] | dict[str, str] | None

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_FLAGS = {"true": True, "yes": True, "false": False, "no": False}


INVALID_ADDRESS = (
    "connection: it is not a valid address; in a user name and a password write % as %25, / as %2F, : as %3A, @ "
    "as %40, and a space as %20"
)
"""The message does not quote the invalid part: that may be a part of the password."""


@dataclass(frozen=True, slots=True)
class ConfigOption:
    name: str
    kind: OptionKind
    meaning: str
    default: OptionValue = None
    """The default as a user would write it; a duration as `30s`."""
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    secret: bool = False
    """The value is not shown."""


class ConfigProblems(Exception):
    """The options of a user cannot be used: every problem, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class ConnectorConfig:
    """The values of a connector's options, each of its kind. Asking for what was not declared is a bug."""

    def __init__(self, values: Mapping[str, OptionValue]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        """Whether it has a value."""
        return self._values[name] is not None

    def text(self, name: str) -> str:
        return cast(str, self._values[name])

    def number(self, name: str) -> int:
        """The value of a whole number, or of a size in bytes."""
        return cast(int, self._values[name])

    def flag(self, name: str) -> bool:
        return cast(bool, self._values[name])

    def texts(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...] | None", self._values[name]) or ()

    def table(self, name: str) -> dict[str, str]:
        return cast("dict[str, str] | None", self._values[name]) or {}

    def seconds(self, name: str) -> float:
        return cast(float, self._values[name])


def parse_config(options: Iterable[ConfigOption], given: Mapping[str, object]) -> ConnectorConfig:
    """The values of all options; raises `ConfigProblems` with everything that is wrong."""
    declared = {option.name: option for option in options}
    problems = [_unknown(name, declared) for name in given if name not in declared]
    values: dict[str, OptionValue] = {}
    for option in declared.values():
        raw = given.get(option.name)
        if raw is None and option.required:
            problems.append(f"{option.name} is missing: {_lower(option.meaning)}")
        try:
            values[option.name] = _parse(option, option.default if raw is None else raw)
        except ValueError as error:
            problems.append(f"{option.name}: {error}")
    if problems:
        raise ConfigProblems(problems)
    return ConnectorConfig(values)


def _unknown(name: str, declared: Mapping[str, ConfigOption]) -> str:
    near = difflib.get_close_matches(name, declared, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(declared)}"
    return f"there is no option {name}: {hint}"


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _parse(option: ConfigOption, raw: object) -> OptionValue:
    if raw is None:
        return None
    value = _PARSERS[option.kind](raw)
    if option.choices and value not in option.choices:
        raise ValueError(f"{raw!r} is not one of {', '.join(option.choices)}")
    if option.minimum is not None and isinstance(value, int | float) and value < option.minimum:
        raise ValueError(f"{raw} is less than {option.minimum}")
    return value


def _text(raw: object) -> str:
    if isinstance(raw, list | tuple | dict):
        raise ValueError("it must be a string")
    return str(raw)


def _whole_number(raw: object) -> int:
    if isinstance(raw, bool) or not re.fullmatch(r"[+-]?\d+", str(raw).strip()):
        raise ValueError(f"{raw!r} is not a whole number")
    return int(str(raw))


def _flag(raw: object) -> bool:
    found = _FLAGS.get(str(raw).lower())
    if found is None:
        raise ValueError(f"{raw!r} is neither true nor false")
    return found


def _list(raw: object) -> tuple[str, ...]:
    if isinstance(raw, dict):
        raise ValueError("it must be a list")
    if isinstance(raw, str):
        raw = [part for part in (one.strip() for one in raw.split(",")) if part]
    items = raw if isinstance(raw, list | tuple) else [raw]
    return tuple(_text(item) for item in items)


def _mapping(raw: object) -> dict[str, str]:
    if not isinstance(raw, dict):
        raise ValueError("it must be a mapping: name: value")
    return {str(name): _text(value) for name, value in raw.items()}


def parse_seconds(raw: object) -> float:
    match = _DURATION.fullmatch(str(raw).strip())
    if match is None:
        raise ValueError(f"{raw!r} is not a duration; write 500ms, 30s, 10m or 2h")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def _size(raw: object) -> int:
    match = _SIZE.fullmatch(str(raw).strip())
    if match is None:
        raise ValueError(f"{raw!r} is not a size; write 500, 64k, 10MB or 5GiB")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _POWERS[match[2].lower()])


_PARSERS: Mapping[OptionKind, Callable[[object], OptionValue]] = {
    "text": _text,
    "whole number": _whole_number,
    "flag": _flag,
    "list": _list,
    "mapping": _mapping,
    "duration": parse_seconds,
    "size": _size,
}

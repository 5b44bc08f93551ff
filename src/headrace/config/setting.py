"""One setting: its name, type, default, limits and meaning, and how its text becomes a value.

Values have Kafka's types. Text is what files, flags, the environment and AlterConfigs give us; `Setting.parse` is
the only way from text to value, so that the same mistake gets the same answer wherever it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from headrace.model.errors import ErrorCode, KafkaError

Value = bool | int | float | str | tuple[str, ...] | None

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class ConfigError(KafkaError):
    """A setting that cannot be accepted: INVALID_CONFIG on the wire, a refusal to start on the command line."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)

    def __str__(self) -> str:
        return self.message or ""


class ConfigType(IntEnum):
    """Numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(IntEnum):
    HIGH = 0
    MEDIUM = 1
    LOW = 2


class UpdateMode(IntEnum):
    """Whether a broker setting can be changed while the broker runs, and for whom."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class Synonym(NamedTuple):
    """A broker setting that stands in for a topic setting, in a unit of its own."""

    name: str
    multiplier: int = 1


class Setting(NamedTuple):
    """A row of the tables. A tuple and not a dataclass: a hundred are made at every start."""

    name: str
    type: ConfigType
    default: str | None
    importance: Importance
    doc: str
    """One sentence, in our words, for the reference page and DescribeConfigs."""
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[str, ...] = ()
    """For strings the possible values, for lists the possible members."""
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    """For topic settings: the broker settings that give the default, the strongest first."""
    check: Callable[[str], str | None] | None = None
    """What is wrong with the text, for rules that no limit expresses."""
    internal: bool = False
    """Accepted but not shown: for tests and experts."""

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        text = text.strip()
        try:
            value = _CONVERT[self.type](text)
        except ValueError as error:
            raise self._refusal(text, str(error)) from None
        problem = self._limit_problem(value) or (self.check(text) if self.check else None)
        if problem:
            raise self._refusal(text, problem)
        return value

    def default_value(self) -> Value:
        return None if self.default is None else self.parse(self.default)

    def _refusal(self, text: str, problem: str) -> ConfigError:
        shown = "(hidden)" if self.sensitive else repr(text)
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {problem}")

    def _limit_problem(self, value: Value) -> str | None:
        if isinstance(value, int | float):
            if self.minimum is not None and value < self.minimum:
                return f"it must be at least {self.minimum}"
            if self.maximum is not None and value > self.maximum:
                return f"it must be at most {self.maximum}"
        elif self.allowed and value is not None:
            for member in value if isinstance(value, tuple) else (value,):
                if member not in self.allowed:
                    return f"it must be one of {', '.join(self.allowed)}"
        return None


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("expected true or false")
    return lowered == "true"


def _integer(bits: int, kind: str) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def convert(text: str) -> int:
        # Narrower than int(): no underscores, no inner blanks, ASCII digits only.
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError(f"not a number of type {kind}")
        value = int(text)
        if not -limit <= value < limit:
            raise ValueError(f"out of the range of {kind}")
        return value

    return convert


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("not a number of type DOUBLE") from None


def _list(text: str) -> tuple[str, ...]:
    return tuple(member.strip() for member in text.split(",")) if text else ()


_CONVERT: dict[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _integer(32, "INT"),
    ConfigType.SHORT: _integer(16, "SHORT"),
    ConfigType.LONG: _integer(64, "LONG"),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


def value_text(value: Value) -> str | None:
    """A parsed value as Kafka writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)

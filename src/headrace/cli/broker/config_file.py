"""Reads a broker's file: `server.properties` as Kafka has it, or flat keys in TOML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from headrace.config.properties import parse_properties, property_lines
from headrace.config.setting import ConfigError


class ConfigFile(NamedTuple):
    pairs: dict[str, str]
    places: dict[str, str]
    """Where each setting stands."""


def read_config_file(path: Path) -> ConfigFile:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.") from None
    try:
        if path.suffix == ".toml":
            pairs = _parse_toml(raw)
            return ConfigFile(pairs, dict.fromkeys(pairs, str(path)))
        text = _decoded(raw)
        places = {name: f"{path}, line {number}" for name, number in property_lines(text).items()}
        return ConfigFile(parse_properties(text), places)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")  # the encoding in which Java reads properties


def _parse_toml(raw: bytes) -> dict[str, str]:
    import tomllib  # only needed for this kind of file

    try:
        return dict(_flat("", tomllib.loads(raw.decode())))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not valid TOML: {error}") from None


def _flat(prefix: str, table: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """TOML reads an unquoted num.partitions as a table; put the dots back."""
    for key, value in table.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            yield from _flat(name, value)
        else:
            yield name, _text(name, value)


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(_text(name, member) for member in value)
    raise ConfigError(f"{name} has a value that is not a string, number, boolean or list")

"""All settings in one place: those that are honoured, those that only Kafka has, the error for unknown names."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.config.broker_settings import BROKER_SETTINGS
from headrace.config.known_unused import KAFKA_4, KAFKA_OLDER, is_known_unused
from headrace.config.setting import ConfigError, ConfigType, Setting, Synonym, UpdateMode, Value, value_text
from headrace.config.topic_settings import NOT_ACTED_ON, TOPIC_SETTINGS

KNOWN_UNUSED: frozenset[str] = KAFKA_4 | KAFKA_OLDER

BROKER_NOT_ACTED_ON: frozenset[str] = frozenset(
    synonym.name for name in NOT_ACTED_ON for synonym in TOPIC_SETTINGS[name].synonyms
)
"""Broker settings that only give a default to topic settings that have no effect yet."""

__all__ = [
    "BROKER_NOT_ACTED_ON",
    "BROKER_SETTINGS",
    "KNOWN_UNUSED",
    "NOT_ACTED_ON",
    "TOPIC_SETTINGS",
    "ConfigError",
    "ConfigType",
    "Setting",
    "Synonym",
    "UnknownConfig",
    "UpdateMode",
    "Value",
    "is_known_unused",
    "unknown_name",
    "value_text",
]


class UnknownConfig(ConfigError):
    """A name that neither Kafka nor Headrace has."""


LONGEST_LIKENESS = 100
"""Characters. A longer name is compared with no other: those we know are shorter."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownConfig:
    """The error for a name that is in no table, with the nearest one that is."""
    import difflib  # only needed for a mistake

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6) if len(name) <= LONGEST_LIKENESS else []
    hint = f"; did you mean {near[0]}?" if near else ""
    return UnknownConfig(f"Unknown {kind} config name: {name}{hint}")

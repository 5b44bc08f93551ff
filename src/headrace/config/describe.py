"""Settings as DescribeConfigs shows them: the value that holds, where it comes from, and what else was given."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.config.broker_config import BrokerConfig
from headrace.config.dynamic_unused import unused_setting
from headrace.config.group_config import GROUP_SETTINGS
from headrace.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, UpdateMode, Value, value_text
from headrace.config.tls_config import is_reconfigurable, listener_setting
from headrace.config.topic_config import NO_DYNAMIC_CONFIGS, DynamicConfigs, topic_defaults, topic_values

_NUMBERS = ("node.id", "broker.id")
"""Two names of one setting: a value given under either is shown under both."""


class ConfigSource(IntEnum):
    """The sources of a value, numbered as in DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class DescribedSetting(NamedTuple):
    setting: Setting
    value: str | None
    """None for a secret too."""
    source: ConfigSource
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    """Strongest first; `value` comes from the first."""

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def sensitive(self) -> bool:
        return self.setting.sensitive


def describe_topic(
    overrides: Mapping[str, str], config: BrokerConfig, dynamic: DynamicConfigs = NO_DYNAMIC_CONFIGS
) -> list[DescribedSetting]:
    values = topic_values(overrides, topic_defaults(config, dynamic))
    return [
        _topic_entry(setting, values[name], overrides, config, dynamic)
        for name, setting in TOPIC_SETTINGS.items()
        if not setting.internal or name in overrides
    ]


def describe_group(
    overrides: Mapping[str, str], config: BrokerConfig, dynamic: DynamicConfigs = NO_DYNAMIC_CONFIGS
) -> list[DescribedSetting]:
    """The settings of a group that may not exist yet: they can be set before the group is created."""
    entries = []
    for name, setting in GROUP_SETTINGS.items():
        synonyms: list[ConfigSynonym] = []
        if name in overrides:
            synonyms.append(ConfigSynonym(name, overrides[name], ConfigSource.DYNAMIC_GROUP_CONFIG))
        for synonym in setting.synonyms:
            synonyms += _synonyms(synonym.name, config, dynamic)
        strongest = synonyms[0]
        entries.append(DescribedSetting(setting, strongest.value, strongest.source, False, tuple(synonyms)))
    return entries


def describe_broker(config: BrokerConfig, dynamic: DynamicConfigs = NO_DYNAMIC_CONFIGS) -> list[DescribedSetting]:
    """All settings that a broker honours, and those that were set while it runs and have no effect."""
    entries = [
        _broker_entry(setting, _synonyms(name, config, dynamic)) for name, setting in BROKER_SETTINGS.items()
    ]
    entries += [_listener_entry(name, text) for name, text in dynamic.broker.items() if is_reconfigurable(name)]
    return entries + [
        _broker_entry(setting, _levels(setting, dynamic))
        for name in dict.fromkeys([*dynamic.broker, *dynamic.default])
        if (setting := unused_setting(name)) is not None
    ]


def describe_every_broker(dynamic: DynamicConfigs) -> list[DescribedSetting]:
    """Settings that were set dynamically for all brokers: there is no single broker whose file could be read."""
    return [
        _broker_entry(setting, (ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),))
        for name, text in dynamic.default.items()
        if (setting := BROKER_SETTINGS.get(name) or unused_setting(name)) is not None
    ]


def _topic_entry(
    setting: Setting, value: Value, overrides: Mapping[str, str], config: BrokerConfig, dynamic: DynamicConfigs
) -> DescribedSetting:
    """A topic's setting. Kafka shows its first synonym; another (log.retention.hours) is shown if it is set."""
    synonyms: list[ConfigSynonym] = []
    if setting.name in overrides:
        synonyms.append(ConfigSynonym(setting.name, overrides[setting.name], ConfigSource.DYNAMIC_TOPIC_CONFIG))
    for place, synonym in enumerate(setting.synonyms):
        levels = _synonyms(synonym.name, config, dynamic)
        synonyms += [level for level in levels if place == 0 or level.source is not ConfigSource.DEFAULT_CONFIG]
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    text = overrides.get(setting.name, value_text(value))
    return DescribedSetting(setting, None if setting.sensitive else text, source, False, tuple(synonyms))


def _broker_entry(setting: Setting, synonyms: tuple[ConfigSynonym, ...]) -> DescribedSetting:
    strongest = synonyms[0] if synonyms else ConfigSynonym(setting.name, None, ConfigSource.DEFAULT_CONFIG)
    read_only = setting.update_mode is UpdateMode.READ_ONLY
    return DescribedSetting(setting, strongest.value, strongest.source, read_only, synonyms)


def _listener_entry(name: str, text: str) -> DescribedSetting:
    """A setting of one listener that was changed while the broker runs."""
    setting = BROKER_SETTINGS[listener_setting(name)[1]]._replace(name=name)
    shown = None if setting.sensitive else text
    source = ConfigSource.DYNAMIC_BROKER_CONFIG
    return DescribedSetting(setting, shown, source, False, (ConfigSynonym(name, shown, source),))


def _synonyms(name: str, config: BrokerConfig, dynamic: DynamicConfigs) -> tuple[ConfigSynonym, ...]:
    """Every level at which a broker setting has a value, the strongest first."""
    given = config.given(name)
    if name in _NUMBERS and any(config.given(one) is not None for one in _NUMBERS):
        given = str(config.node_id)
    return _levels(BROKER_SETTINGS[name], dynamic, given)


def _levels(setting: Setting, dynamic: DynamicConfigs, given: str | None = None) -> tuple[ConfigSynonym, ...]:
    name = setting.name
    levels = (
        (dynamic.broker.get(name), ConfigSource.DYNAMIC_BROKER_CONFIG),
        (dynamic.default.get(name), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (given, ConfigSource.STATIC_BROKER_CONFIG),
        (setting.default, ConfigSource.DEFAULT_CONFIG),
    )
    return tuple(
        ConfigSynonym(name, None if setting.sensitive else text, source)
        for text, source in levels
        if text is not None
    )

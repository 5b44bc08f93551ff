"""The settings that hold for a topic: its own over the broker's dynamic ones over its file over the defaults.

A topic setting has broker settings as synonyms, some in coarser units: retention.ms comes from log.retention.ms,
else log.retention.minutes, else log.retention.hours. At each of these a dynamic value of this broker wins over
one of all brokers, and that over the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.config.broker_config import BrokerConfig
from headrace.config.dynamic_unused import check_unused, unused_setting
from headrace.config.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    ConfigError,
    Setting,
    UpdateMode,
    Value,
    is_known_unused,
    unknown_name,
)
from headrace.config.tls_config import is_reconfigurable, listener_setting

_NOTHING: Mapping[str, str] = MappingProxyType({})


class DynamicConfigs(NamedTuple):
    """What AlterConfigs has set on brokers, as text (the metadata image's `broker_configs`)."""

    broker: Mapping[str, str] = _NOTHING
    """For this broker."""
    default: Mapping[str, str] = _NOTHING
    """For every broker."""

    @staticmethod
    def of(broker_configs: Mapping[str, Mapping[str, str]], broker_id: int) -> DynamicConfigs:
        return DynamicConfigs(broker_configs.get(str(broker_id), _NOTHING), broker_configs.get("", _NOTHING))


NO_DYNAMIC_CONFIGS = DynamicConfigs()


def topic_defaults(config: BrokerConfig, dynamic: DynamicConfigs = NO_DYNAMIC_CONFIGS) -> dict[str, Value]:
    """The values for a topic that sets nothing itself."""
    return {name: _default(setting, config, dynamic) for name, setting in TOPIC_SETTINGS.items()}


def topic_values(overrides: Mapping[str, str], defaults: Mapping[str, Value]) -> dict[str, Value]:
    """The values for a topic with settings of its own. They were checked when they were set."""
    values = dict(defaults)
    for name, text in overrides.items():
        if name in TOPIC_SETTINGS:
            values[name] = TOPIC_SETTINGS[name].parse(text)
    if values["internal.segment.bytes"] is not None:
        values["segment.bytes"] = values["internal.segment.bytes"]
    return values


def check_topic_overrides(overrides: Mapping[str, str], defaults: Mapping[str, Value]) -> None:
    """Raise ConfigError unless a topic may have these settings on a broker with these defaults."""
    for name in overrides:
        if name not in TOPIC_SETTINGS:
            raise unknown_name("topic", name, TOPIC_SETTINGS)
    values = topic_values(overrides, defaults)
    shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(shortest, int)
    assert isinstance(longest, int)
    if shortest > longest:
        raise ConfigError(f"min.compaction.lag.ms ({shortest}) is above max.compaction.lag.ms ({longest})")


def check_broker_overrides(overrides: Mapping[str, str], every_broker: bool) -> None:
    """Raise ConfigError unless these broker settings may be set while brokers run."""
    for name, text in overrides.items():
        if is_reconfigurable(name):
            if every_broker:
                raise ConfigError(f"{name} can only be set for one broker")
            BROKER_SETTINGS[listener_setting(name)[1]].parse(text)
            continue
        unused = unused_setting(name)
        setting = unused or BROKER_SETTINGS.get(name)
        if setting is None and not is_known_unused(name):
            raise unknown_name("broker", name, BROKER_SETTINGS)
        if setting is None or setting.update_mode is UpdateMode.READ_ONLY:
            raise ConfigError(f"{name} can only be set in the broker's file, and needs a restart")
        if setting.update_mode is UpdateMode.PER_BROKER and every_broker:
            raise ConfigError(f"{name} can only be set for one broker")
        check_unused(setting, text) if unused else setting.parse(text)


def _default(setting: Setting, config: BrokerConfig, dynamic: DynamicConfigs) -> Value:
    for synonym in setting.synonyms:
        text = dynamic.broker.get(synonym.name) or dynamic.default.get(synonym.name)
        value = BROKER_SETTINGS[synonym.name].parse(text) if text is not None else config.value(synonym.name)
        if value is not None:
            return _scaled(value, synonym.multiplier)
    return setting.default_value()


def _scaled(value: Value, multiplier: int) -> Value:
    if multiplier == 1:
        return value
    assert isinstance(value, int)
    return value * multiplier if value >= 0 else value

"""A broker setting as it is now: what AlterConfigs set on this broker, else on all of them, else its own file."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.config.broker_config import BrokerConfig
from headrace.config.settings import BROKER_SETTINGS, Value
from headrace.config.topic_config import DynamicConfigs

BrokerConfigs = Mapping[str, Mapping[str, str]]
"""The metadata image's `broker_configs`."""


def current_value(config: BrokerConfig, broker_configs: BrokerConfigs, name: str) -> Value:
    dynamic = DynamicConfigs.of(broker_configs, config.node_id)
    text = dynamic.broker.get(name, dynamic.default.get(name))
    return config.value(name) if text is None else BROKER_SETTINGS[name].parse(text)


def current_integer(config: BrokerConfig, broker_configs: BrokerConfigs, name: str) -> int:
    value = current_value(config, broker_configs, name)
    assert isinstance(value, int), name
    return value


def current_boolean(config: BrokerConfig, broker_configs: BrokerConfigs, name: str) -> bool:
    value = current_value(config, broker_configs, name)
    assert isinstance(value, bool), name
    return value


def current_text(config: BrokerConfig, broker_configs: BrokerConfigs, name: str) -> str:
    value = current_value(config, broker_configs, name)
    assert value is None or isinstance(value, str), name
    return value or ""

"""Settings of consumer groups: what a broker allows, and what holds when its limits have changed since."""

from __future__ import annotations

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.describe import ConfigSource, describe_group
from headrace.config.group_config import GROUP_SETTINGS, ConsumerGroupConfig, GroupLimits
from headrace.config.settings import ConfigError

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_the_brokers_settings_hold_for_a_group_without_its_own() -> None:
    config = BrokerConfig.build({"group.consumer.session.timeout.ms": "50000"})
    assert GroupLimits(config).config_of({}) == ConsumerGroupConfig(50_000, 5_000, 1_000)


def test_a_setting_is_kept_within_limits_that_came_later() -> None:
    narrow = BrokerConfig.build({"group.consumer.max.session.timeout.ms": "46000"})
    assert GroupLimits(narrow).config_of({SESSION: "60000"}).session_timeout_ms == 46_000
    high = BrokerConfig.build(
        {"group.consumer.min.heartbeat.interval.ms": "9000", "group.consumer.heartbeat.interval.ms": "9500"}
    )
    assert GroupLimits(high).config_of({HEARTBEAT: "5000"}).heartbeat_interval_ms == 9_000


def test_a_session_is_longer_than_the_heartbeats_of_a_group() -> None:
    wide = {"group.consumer.min.session.timeout.ms": "6000"}
    with pytest.raises(ConfigError, match="must be greater than consumer"):
        GroupLimits(BrokerConfig.build(wide)).check({SESSION: "6000", HEARTBEAT: "6000"})
    wider = BrokerConfig.build({**wide, "group.consumer.max.session.timeout.ms": "45000"})
    both_again = GroupLimits(wider).config_of({SESSION: "6000", HEARTBEAT: "6000"})
    assert both_again == ConsumerGroupConfig(45_000, 5_000, 1_000), "the broker's own pair"


def test_where_a_value_comes_from() -> None:
    config = BrokerConfig.build({"group.consumer.heartbeat.interval.ms": "6000"})
    rows = {entry.name: entry for entry in describe_group({SESSION: "50000"}, config)}
    assert set(rows) == set(GROUP_SETTINGS)
    assert (rows[SESSION].value, rows[SESSION].source) == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert [synonym.name for synonym in rows[SESSION].synonyms] == [SESSION, "group.consumer.session.timeout.ms"]
    assert (rows[HEARTBEAT].value, rows[HEARTBEAT].source) == ("6000", ConfigSource.STATIC_BROKER_CONFIG)
    assert not rows[SESSION].read_only

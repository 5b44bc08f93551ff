"""The settings that hold for a topic, and how they are described."""

from __future__ import annotations

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.describe import ConfigSource, describe_broker, describe_every_broker, describe_topic
from headrace.config.dynamic_unused import DYNAMIC_UNUSED
from headrace.config.setting import ConfigError
from headrace.config.settings import BROKER_SETTINGS, KNOWN_UNUSED, TOPIC_SETTINGS
from headrace.config.topic_config import (
    DynamicConfigs,
    check_broker_overrides,
    check_topic_overrides,
    topic_defaults,
    topic_values,
)
from headrace.storage.log_config import LogConfig

HOUR_MS = 3_600_000


def test_without_any_setting_a_topic_has_kafkas_defaults() -> None:
    defaults = topic_defaults(BrokerConfig.build())
    assert defaults == {name: setting.default_value() for name, setting in TOPIC_SETTINGS.items()}


def test_the_defaults_are_those_of_the_log() -> None:
    assert LogConfig.from_settings(topic_defaults(BrokerConfig.build())) == LogConfig()


@pytest.mark.parametrize(
    ("file", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "1", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_finer_synonyms_win(file: dict[str, str], retention_ms: int) -> None:
    assert topic_defaults(BrokerConfig.build(file))["retention.ms"] == retention_ms


def test_topic_over_this_broker_over_all_brokers_over_file() -> None:
    config = BrokerConfig.build({"log.segment.bytes": "2000000"})
    name = "log.segment.bytes"
    every = {"": {name: "3000000"}}
    one = every | {"1": {name: "4000000"}}
    assert topic_defaults(config)["segment.bytes"] == 2000000
    assert topic_defaults(config, DynamicConfigs.of(every, 1))["segment.bytes"] == 3000000
    assert topic_defaults(config, DynamicConfigs.of(one, 1))["segment.bytes"] == 4000000
    assert topic_defaults(config, DynamicConfigs.of(one, 2))["segment.bytes"] == 3000000
    defaults = topic_defaults(config, DynamicConfigs.of(one, 1))
    assert topic_values({"segment.bytes": "5000000"}, defaults)["segment.bytes"] == 5000000


def test_a_dynamic_value_wins_over_a_finer_one_only_at_its_own_name() -> None:
    config = BrokerConfig.build({"log.retention.minutes": "1"})
    dynamic = DynamicConfigs(default={"log.retention.ms": "7"})
    assert topic_defaults(config, dynamic)["retention.ms"] == 7


def test_small_segments_for_tests() -> None:
    values = topic_values({"internal.segment.bytes": "100"}, topic_defaults(BrokerConfig.build()))
    assert values["segment.bytes"] == 100


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ({"retention": "1"}, "did you mean retention.ms"),
        ({"segment.bytes": "100"}, "at least 1048576"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "above max.compaction.lag.ms"),
    ],
)
def test_wrong_topic_settings(overrides: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_topic_overrides(overrides, topic_defaults(BrokerConfig.build()))
    assert part in str(caught.value)


def test_right_topic_settings() -> None:
    check_topic_overrides(
        {"cleanup.policy": "compact,delete", "retention.ms": "-1"}, topic_defaults(BrokerConfig.build())
    )


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ({"num.partitions": "3"}, "needs a restart"),
        ({"process.roles": "broker"}, "needs a restart"),
        ({"log.cleaner.io.buffer.size": "many"}, "not a number"),
        ({"sasl.kerberos.min.time.before.relogin": "58000"}, "only be set for one broker"),
        ({"listener.name.internal.num.network.threads": "4"}, "only be set for one broker"),
        ({"listener.name.internal.no.such.thing": "4"}, "needs a restart"),
        ({"log.retention.mss": "3"}, "did you mean log.retention.ms"),
        ({"log.retention.ms": "x"}, "not a number"),
    ],
)
def test_wrong_dynamic_broker_settings(overrides: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_broker_overrides(overrides, every_broker=True)
    assert part in str(caught.value)


def test_right_dynamic_broker_settings() -> None:
    check_broker_overrides({"log.retention.ms": "1000"}, every_broker=True)
    check_broker_overrides({"log.cleaner.io.buffer.size": "3", "num.io.threads": "8"}, every_broker=True)
    check_broker_overrides({"sasl.kerberos.min.time.before.relogin": "58000"}, every_broker=False)
    check_broker_overrides({"listener.name.internal.num.network.threads": "4"}, every_broker=False)


def test_a_class_that_decides_who_a_client_is_cannot_be_set_in_vain() -> None:
    with pytest.raises(ConfigError, match="Java classes cannot be loaded here"):
        check_broker_overrides({"principal.builder.class": "com.example.Builder"}, every_broker=False)


def test_every_setting_that_only_kafka_changes_while_it_runs_is_known_and_unused() -> None:
    assert DYNAMIC_UNUSED.keys() <= KNOWN_UNUSED
    assert not DYNAMIC_UNUSED.keys() & BROKER_SETTINGS.keys()


def test_describe_topic() -> None:
    config = BrokerConfig.build({"log.retention.minutes": "10"})
    dynamic = DynamicConfigs(default={"log.retention.ms": "700"})
    entries = {entry.name: entry for entry in describe_topic({"segment.ms": "9"}, config, dynamic)}
    assert entries.keys() == TOPIC_SETTINGS.keys() - {"internal.segment.bytes"}

    retention = entries["retention.ms"]
    assert (retention.value, retention.source) == ("700", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in retention.synonyms] == [
        ("log.retention.ms", "700", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.minutes", "10", ConfigSource.STATIC_BROKER_CONFIG),
    ]
    assert (entries["segment.ms"].value, entries["segment.ms"].source) == ("9", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert (entries["flush.ms"].value, entries["flush.ms"].source) == (str(2**63 - 1), ConfigSource.DEFAULT_CONFIG)
    assert not any(entry.read_only for entry in entries.values())


def test_defaults_in_another_unit_are_not_shown_as_synonyms() -> None:
    entries = {entry.name: entry for entry in describe_topic({}, BrokerConfig.build({}))}
    for name, value in (("retention.ms", "604800000"), ("segment.ms", "604800000"), ("flush.ms", str(2**63 - 1))):
        assert (entries[name].value, entries[name].source) == (value, ConfigSource.DEFAULT_CONFIG)
        assert entries[name].synonyms == ()


def test_describe_topic_converts_the_unit_of_its_synonym() -> None:
    config = BrokerConfig.build({"log.retention.minutes": "10"})
    retention = next(entry for entry in describe_topic({}, config) if entry.name == "retention.ms")
    assert (retention.value, retention.source) == ("600000", ConfigSource.STATIC_BROKER_CONFIG)


def test_describe_broker() -> None:
    config = BrokerConfig.build({"num.partitions": "3"})
    dynamic = DynamicConfigs(broker={"message.max.bytes": "9"}, default={"message.max.bytes": "8"})
    entries = {entry.name: entry for entry in describe_broker(config, dynamic)}
    assert entries.keys() == BROKER_SETTINGS.keys()
    assert (entries["num.partitions"].value, entries["num.partitions"].source) == (
        "3",
        ConfigSource.STATIC_BROKER_CONFIG,
    )
    assert entries["num.partitions"].read_only
    assert not entries["message.max.bytes"].read_only
    assert [synonym.value for synonym in entries["message.max.bytes"].synonyms] == ["9", "8", "1048588"]
    assert (entries["log.retention.ms"].value, entries["log.retention.ms"].source) == (
        None,
        ConfigSource.DEFAULT_CONFIG,
    )


def test_describe_every_broker_shows_only_what_was_set() -> None:
    entries = describe_every_broker(DynamicConfigs(default={"message.max.bytes": "8"}))
    assert [(entry.name, entry.value, entry.source) for entry in entries] == [
        ("message.max.bytes", "8", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]


def test_settings_without_effect_are_described_as_they_were_set() -> None:
    kerberos, threads = "sasl.kerberos.min.time.before.relogin", "num.io.threads"
    dynamic = DynamicConfigs(broker={kerberos: "58000", threads: "4"}, default={threads: "9"})
    entries = {entry.name: entry for entry in describe_broker(BrokerConfig.build(), dynamic)}
    assert (entries[kerberos].value, entries[kerberos].source, entries[kerberos].read_only) == (
        "58000",
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        False,
    )
    assert [synonym.value for synonym in entries[threads].synonyms] == ["4", "9"]
    assert [(entry.name, entry.value) for entry in describe_every_broker(dynamic)] == [(threads, "9")]

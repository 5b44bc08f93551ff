"""The tables and the parsing of single values."""

from __future__ import annotations

import pytest

from headrace.config.broker_settings import GROUPS
from headrace.config.setting import Importance
from headrace.config.settings import (
    BROKER_SETTINGS,
    KNOWN_UNUSED,
    TOPIC_SETTINGS,
    ConfigError,
    ConfigType,
    Setting,
    Value,
    unknown_name,
    value_text,
)
from headrace.model.errors import ErrorCode

ALL = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]


def test_every_default_is_a_legal_value() -> None:
    for setting in ALL:
        value = setting.default_value()
        assert (value is None) == (setting.default is None), setting.name


def test_every_setting_is_explained_in_one_sentence() -> None:
    for setting in ALL:
        assert setting.doc.endswith("."), setting.name
        assert setting.doc[0].isupper(), setting.name


def test_no_name_is_in_two_tables() -> None:
    assert not KNOWN_UNUSED & BROKER_SETTINGS.keys()
    assert len(BROKER_SETTINGS) == sum(len(rows) for rows in GROUPS.values())


def test_every_synonym_is_a_broker_setting_of_a_compatible_type() -> None:
    for setting in TOPIC_SETTINGS.values():
        for synonym in setting.synonyms:
            broker = BROKER_SETTINGS[synonym.name]
            numbers = {ConfigType.INT, ConfigType.LONG}
            assert broker.type is setting.type or {broker.type, setting.type} == numbers


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("num.partitions", " 7 ", 7),
        ("num.partitions", "+7", 7),
        ("auto.create.topics.enable", "TRUE", True),
        ("log.cleaner.min.cleanable.ratio", "0.25", 0.25),
        ("log.cleanup.policy", "compact , delete", ("compact", "delete")),
        ("log.cleanup.policy", "", ()),
        ("log.retention.ms", "-1", -1),
        ("broker.rack", " east ", "east"),
    ],
)
def test_text_becomes_a_value_as_in_kafka(name: str, text: str, value: object) -> None:
    assert BROKER_SETTINGS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("num.partitions", "1_0", "not a number of type INT"),
        ("num.partitions", "", "not a number"),
        ("num.partitions", "٣", "not a number"),
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "2147483648", "out of the range"),
        ("compression.zstd.level", "23", "at most 22"),
        ("compression.gzip.level", "0", "-1 or from 1 to 9"),
        ("compression.type", "brotli", "one of uncompressed"),
        ("log.cleanup.policy", "delete,shred", "one of compact, delete"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.cleaner.min.cleanable.ratio", "half", "DOUBLE"),
        ("log.retention.ms", "0", "-1 (no limit) or at least 1"),
    ],
)
def test_a_wrong_value_names_the_setting_and_the_rule(name: str, text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BROKER_SETTINGS[name].parse(text)
    assert name in str(caught.value)
    assert part in str(caught.value)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_refused_secret_is_not_repeated() -> None:
    setting = Setting(
        "a.secret", ConfigType.PASSWORD, None, Importance.HIGH, "A secret.", check=lambda _: "too short"
    )
    with pytest.raises(ConfigError) as caught:
        setting.parse("hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["3", "1:", "1:a", "1:2,3"])
def test_throttled_replicas_are_pairs(text: str) -> None:
    setting = TOPIC_SETTINGS["leader.replication.throttled.replicas"]
    assert setting.parse("*") == ("*",)
    assert setting.parse("0:1, 2:3") == ("0:1", "2:3")
    with pytest.raises(ConfigError):
        setting.parse(text)


def test_tiered_storage_is_refused() -> None:
    assert TOPIC_SETTINGS["remote.storage.enable"].parse("false") is False
    with pytest.raises(ConfigError, match="tiered storage"):
        TOPIC_SETTINGS["remote.storage.enable"].parse("True")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    assert "did you mean retention.ms?" in str(unknown_name("topic", "retension.ms", TOPIC_SETTINGS))
    assert "did you mean" not in str(unknown_name("topic", "zzz", TOPIC_SETTINGS))


@pytest.mark.parametrize(
    ("value", "text"), [(None, None), (True, "true"), (("a", "b"), "a,b"), (5, "5"), (0.5, "0.5"), ("x", "x")]
)
def test_values_are_written_as_kafka_writes_them(value: Value, text: str | None) -> None:
    assert value_text(value) == text

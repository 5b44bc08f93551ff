"""What becomes of requests about settings, legacy and incremental: codes are Kafka's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.group_config import GroupLimits
from headrace.config.settings import LONGEST_LIKENESS
from headrace.config.topic_config import topic_defaults
from headrace.coordination.contract import Delete
from headrace.metadata.changes import BrokerConfigured, GroupConfigured, TopicConfigured, operations
from headrace.metadata.config_decisions import (
    MAX_EDITS,
    ConfigAlteration,
    ConfigEdit,
    ConfigOutcome,
    decide_alter_configs,
)
from headrace.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER, GROUP = ResourceType
DEFAULTS = topic_defaults(BrokerConfig.build())
IMAGE = MetadataImage(
    "c",
    brokers={0: BrokerImage(0, 1, ())},
    broker_configs={"0": {"message.max.bytes": "5000"}},
).with_topics(
    [
        TopicImage(
            "t",
            TopicId(b"t" * 16),
            (PartitionImage((0,), 0, 0, (0,)),),
            {"retention.ms": "1000", "segment.bytes": "2000000"},
        )
    ],
    [],
)


LIMITS = GroupLimits(BrokerConfig.build())


def alter(
    *edits: tuple[str, int, str | None], name: str = "t", kind: int = TOPIC, replace_all: bool = False
) -> ConfigOutcome:
    alteration = ConfigAlteration(kind, name, [ConfigEdit(*edit) for edit in edits], replace_all)
    (outcome,) = decide_alter_configs(IMAGE, [alteration], DEFAULTS, LIMITS)
    return outcome


def code(outcome: ConfigOutcome) -> ErrorCode:
    return outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE


def test_legacy_replaces_everything() -> None:
    outcome = alter(("retention.bytes", SET, "77"), replace_all=True)
    assert outcome == TopicConfigured("t", {"retention.bytes": "77"})
    assert alter(replace_all=True) == TopicConfigured("t", {})


def test_incremental_changes_only_what_is_named() -> None:
    outcome = alter(("retention.ms", DELETE, None), ("retention.bytes", SET, "77"), ("flush.ms", DELETE, None))
    assert outcome == TopicConfigured("t", {"segment.bytes": "2000000", "retention.bytes": "77"})


def test_lists_are_appended_to_and_subtracted_from_starting_at_the_default() -> None:
    outcome = alter(("cleanup.policy", APPEND, "compact,delete"))
    assert isinstance(outcome, TopicConfigured)
    assert outcome.configs["cleanup.policy"] == "delete,compact"
    outcome = alter(("cleanup.policy", SUBTRACT, "compact"))
    assert isinstance(outcome, TopicConfigured)
    assert outcome.configs["cleanup.policy"] == "delete"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (("no.such.setting", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, ""), ErrorCode.INVALID_CONFIG),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", APPEND, "shrink"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_topic_edits(edit: tuple[str, int, str | None], expected: ErrorCode) -> None:
    assert code(alter(edit)) is expected


@pytest.mark.timeout(60)
def test_long_lists_take_no_longer_than_their_length() -> None:
    """A list of a megabyte, appended to one, kept a broker busy for minutes."""
    name, members = "leader.replication.throttled.replicas", [f"{number}:1" for number in range(100_000)]
    topic = replace(IMAGE.topics["t"], configs={name: ",".join(members)})
    edits = [ConfigEdit(name, APPEND, ",".join(f"{number}:2" for number in range(100_000)))]
    image = IMAGE.with_topics([topic], [])
    (outcome,) = decide_alter_configs(image, [ConfigAlteration(TOPIC, "t", edits)], DEFAULTS, LIMITS)
    assert isinstance(outcome, TopicConfigured)
    assert outcome.configs[name].count(",") == 199_999
    edits = [ConfigEdit(name, SUBTRACT, ",".join(reversed(members)))]
    (outcome,) = decide_alter_configs(image, [ConfigAlteration(TOPIC, "t", edits)], DEFAULTS, LIMITS)
    assert isinstance(outcome, TopicConfigured)
    assert outcome.configs[name] == ""


def test_a_name_that_is_too_long_for_a_typo_is_compared_with_none() -> None:
    outcome = alter(("retention.mx", SET, "1"))
    assert "did you mean retention.ms" in str(outcome)
    assert "did you mean" not in str(alter(("retention.mx".rjust(LONGEST_LIKENESS + 1, "."), SET, "1")))


def test_more_settings_than_there_are_is_refused() -> None:
    edits = [(f"x{number}", SET, "1") for number in range(MAX_EDITS + 1)]
    assert code(alter(*edits)) is ErrorCode.INVALID_REQUEST
    assert code(alter(*edits[1:])) is ErrorCode.INVALID_CONFIG


def test_settings_that_contradict_each_other_are_refused() -> None:
    assert code(alter(("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5"))) is (
        ErrorCode.INVALID_CONFIG
    )


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_REQUEST),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER, "9", ErrorCode.INVALID_REQUEST),
        (BROKER, "00", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_are_not_there(kind: int, name: str, expected: ErrorCode) -> None:
    assert code(alter(name=name, kind=kind)) is expected


def test_a_setting_or_resource_named_twice_is_refused() -> None:
    assert code(alter(("retention.ms", SET, "1"), ("retention.ms", SET, "2"))) is ErrorCode.INVALID_REQUEST
    twice = ConfigAlteration(TOPIC, "t", [])
    other = ConfigAlteration(BROKER, "0", [])
    outcomes = decide_alter_configs(IMAGE, [twice, other, twice], DEFAULTS, LIMITS)
    assert [code(outcome) for outcome in outcomes] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


def test_broker_settings_for_one_and_for_all() -> None:
    outcome = alter(("message.max.bytes", SET, "9000"), name="0", kind=BROKER)
    assert outcome == BrokerConfigured("0", {"message.max.bytes": "9000"}, first_time=False)
    outcome = alter(("message.max.bytes", SET, "9000"), name="", kind=BROKER)
    assert outcome == BrokerConfigured("", {"message.max.bytes": "9000"}, first_time=True)


@pytest.mark.parametrize(
    "edit", [("node.id", SET, "5"), ("message.max.bytes", SET, "big"), ("process.roles", SET, "broker")]
)
def test_anything_wrong_with_a_broker_setting_is_an_invalid_request(edit: tuple[str, int, str | None]) -> None:
    assert code(alter(edit, name="0", kind=BROKER)) is ErrorCode.INVALID_REQUEST


def test_an_unknown_broker_setting_is_an_invalid_config() -> None:
    assert code(alter(("no.such.setting", SET, "1"), name="0", kind=BROKER)) is ErrorCode.INVALID_CONFIG


def test_a_broker_setting_that_only_kafka_uses_is_kept() -> None:
    name = "sasl.kerberos.min.time.before.relogin"
    outcome = alter((name, SET, "58000"), ("metric.reporters", APPEND, "a.B"), name="0", kind=BROKER)
    assert isinstance(outcome, BrokerConfigured)
    assert (outcome.configs[name], outcome.configs["metric.reporters"]) == ("58000", "a.B")


def test_group_settings_are_checked_against_the_brokers_limits() -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    outcome = alter((session, SET, "50000"), (heartbeat, SET, "6000"), name="g", kind=GROUP)
    assert outcome == GroupConfigured("g", {session: "50000", heartbeat: "6000"}, first_time=True)
    for name, value in [
        (session, "44999"),
        (session, "60001"),
        (heartbeat, "4999"),
        (heartbeat, "15001"),
        ("consumer.assignment.interval.ms", "15001"),
        ("consumer.assignment.interval.ms", "-1"),
        (session, "soon"),
        ("share.session.timeout.ms", "50000"),
    ]:
        assert code(alter((name, SET, value), name="g", kind=GROUP)) is ErrorCode.INVALID_CONFIG, (name, value)
    assert code(alter((session, APPEND, "1"), name="g", kind=GROUP)) is ErrorCode.INVALID_CONFIG
    assert code(alter((session, SET, "50000"), name="", kind=GROUP)) is ErrorCode.INVALID_REQUEST


def test_a_group_without_settings_is_forgotten() -> None:
    image = replace(IMAGE, group_configs={"g": {"consumer.session.timeout.ms": "50000"}})
    alteration = ConfigAlteration(GROUP, "g", [ConfigEdit("consumer.session.timeout.ms", DELETE, None)])
    (outcome,) = decide_alter_configs(image, [alteration], DEFAULTS, LIMITS)
    assert outcome == GroupConfigured("g", {}, first_time=False)
    assert [type(op) for op in operations(outcome, 1)] == [Delete]
    unknown = ConfigAlteration(GROUP, "h", [ConfigEdit("consumer.session.timeout.ms", DELETE, None)])
    (nothing,) = decide_alter_configs(image, [unknown], DEFAULTS, LIMITS)
    assert not isinstance(nothing, KafkaError)
    assert list(operations(nothing, 1)) == []

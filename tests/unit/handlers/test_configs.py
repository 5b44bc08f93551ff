"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.describe import ConfigSource
from headrace.config.setting import ConfigType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages import alter_configs, incremental_alter_configs
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND = 0, 1, 2


def describe(kind: int, name: str, *keys: str, **more: Any) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return DescribeConfigsRequest(resources=[resource], **more)


def edit(kind: int, name: str, *edits: tuple[str, int, str | None], **more: Any) -> Any:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in edits
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], **more)


async def test_settings_of_a_topic(bench: Any) -> None:
    await bench.create_topic("a", retention_ms="5000")
    request = describe(TOPIC, "a", "retention.ms", "nope", include_synonyms=True, include_documentation=True)
    (result,) = (await bench.call(request, 4)).results
    (row,) = result.configs
    assert (row.name, row.value, row.config_source) == ("retention.ms", "5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert row.config_type == ConfigType.LONG
    assert row.documentation
    assert [one.name for one in row.synonyms] == ["retention.ms"]
    plain = (await bench.call(describe(TOPIC, "a"), 4)).results[0].configs
    assert len(plain) > 20
    assert all(row.synonyms == [] and row.documentation is None for row in plain)
    nothing_named = DescribeConfigsResource(resource_type=TOPIC, resource_name="a", configuration_keys=[])
    answer = await bench.call(DescribeConfigsRequest(resources=[nothing_named]), 1)
    assert len(answer.results[0].configs) == len(plain)


async def test_settings_of_a_broker(bench: Any) -> None:
    (result,) = (await bench.call(describe(BROKER, "1", "node.id", "num.partitions"), 4)).results
    rows = {row.name: row for row in result.configs}
    assert rows["node.id"].value == "1"
    assert rows["node.id"].read_only
    assert rows["num.partitions"].config_source == ConfigSource.DEFAULT_CONFIG
    assert (await bench.call(describe(BROKER, ""), 4)).results[0].configs == []


async def test_the_number_of_a_broker_is_shown_under_both_of_its_names(bench: Any) -> None:
    """As in Kafka: `broker.id` was -1 with `node.id` in the file."""
    (result,) = (await bench.call(describe(BROKER, "1", "broker.id", "node.id", include_synonyms=True), 4)).results
    rows = {row.name: row for row in result.configs}
    assert [(rows[name].value, rows[name].config_source) for name in ("node.id", "broker.id")] == [
        ("1", ConfigSource.STATIC_BROKER_CONFIG)
    ] * 2
    assert [(one.value, one.source) for one in rows["broker.id"].synonyms] == [
        ("1", ConfigSource.STATIC_BROKER_CONFIG),
        ("-1", ConfigSource.DEFAULT_CONFIG),
    ]


async def test_addresses_and_directories_are_lists(bench: Any) -> None:
    """In Kafka 4.3.1, all of these; they were strings."""
    names = ("listeners", "advertised.listeners", "log.dir", "log.dirs", "cordoned.log.dirs")
    (result,) = (await bench.call(describe(BROKER, "1", *names), 4)).results
    assert {row.name: row.config_type for row in result.configs} == dict.fromkeys(names, ConfigType.LIST)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "77", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_has_no_settings(bench: Any, kind: int, name: str, code: ErrorCode) -> None:
    (result,) = (await bench.call(describe(kind, name), 4)).results
    assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
    assert result.configs == []


async def test_single_settings_are_changed_and_take_effect(bench: Any) -> None:
    await bench.create_topic("a")
    response = await bench.call(
        edit(TOPIC, "a", ("retention.ms", SET, "77"), ("cleanup.policy", APPEND, "compact")), 1
    )
    assert (response.responses[0].error_code, response.responses[0].error_message) == (0, None)
    assert bench.image.topics["a"].configs == {"retention.ms": "77", "cleanup.policy": "delete,compact"}
    await bench.call(edit(TOPIC, "a", ("cleanup.policy", DELETE, None)), 1)
    assert bench.image.topics["a"].configs == {"retention.ms": "77"}
    await bench.call(edit(TOPIC, "a", ("retention.ms", SET, "78"), validate_only=True), 1)
    assert bench.image.topics["a"].configs == {"retention.ms": "77"}


async def test_refused_changes(bench: Any) -> None:
    await bench.create_topic("a")
    for request, code in (
        (edit(TOPIC, "a", ("nope", SET, "1")), ErrorCode.INVALID_CONFIG),
        (edit(TOPIC, "a", ("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (edit(TOPIC, "a", ("retention.ms", 9, "1")), ErrorCode.INVALID_REQUEST),
        (edit(TOPIC, "nope", ("retention.ms", SET, "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (edit(BROKER, "1", ("log.dirs", SET, "x")), ErrorCode.INVALID_REQUEST),
        (edit(99, "x", ("a", SET, "x")), ErrorCode.INVALID_REQUEST),
    ):
        response = await bench.call(request, 0)
        assert response.responses[0].error_code == code
        assert response.responses[0].error_message


async def test_the_older_call_replaces_everything(bench: Any) -> None:
    await bench.create_topic("a", retention_ms="5", cleanup_policy="compact")
    config = alter_configs.AlterableConfig(name="retention.ms", value="6")
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="a", configs=[config])
    response = await bench.call(alter_configs.AlterConfigsRequest(resources=[resource]), 2)
    assert response.responses[0].error_code == 0
    assert bench.image.topics["a"].configs == {"retention.ms": "6"}


async def test_an_error_of_the_whole_is_told_for_each(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.handlers.forwarding.DEFAULT_TIMEOUT_SECONDS", 0.1)
    await bench.create_topic("a")
    await bench.broker.controller.close()
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="a")
    for request in (edit(TOPIC, "a"), alter_configs.AlterConfigsRequest(resources=[resource])):
        response = await bench.call(request, 1)
        assert response.responses[0].error_code == ErrorCode.NOT_CONTROLLER


async def test_resources_that_can_have_settings(bench: Any) -> None:
    await bench.create_topic("a")

    async def listed(version: int, *kinds: int) -> set[tuple[int, str]]:
        response = await bench.call(ListConfigResourcesRequest(resource_types=list(kinds)), version)
        return {(row.resource_type, row.resource_name) for row in response.config_resources}

    assert await listed(1) == {(TOPIC, "a"), (BROKER, "1")}
    assert await listed(1, BROKER, CLIENT_METRICS) == {(BROKER, "1")}
    assert await listed(0) == set()
    with pytest.raises(KafkaError) as refused:
        await listed(1, 99)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


async def test_settings_of_a_group(bench: Any) -> None:
    """They need no group, are listed while there are some, and are named by where they come from."""
    name = "consumer.session.timeout.ms"

    async def listed() -> list[tuple[str, int]]:
        answer = await bench.call(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
        return [(one.resource_name, one.resource_type) for one in answer.config_resources]

    async def described() -> tuple[str, int, list[str]]:
        (result,) = (await bench.call(describe(GROUP, "g", name, "no", include_synonyms=True), 4)).results
        (row,) = result.configs
        return row.value, row.config_source, [synonym.name for synonym in row.synonyms]

    assert await listed() == []
    default = ("45000", ConfigSource.DEFAULT_CONFIG, [f"group.{name}"])
    assert await described() == default
    (changed,) = (await bench.call(edit(GROUP, "g", (name, SET, "50000")), 1)).responses
    assert changed.error_code == ErrorCode.NONE
    assert await described() == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG, [name, f"group.{name}"])
    assert await listed() == [("g", GROUP)]
    (refused,) = (await bench.call(edit(GROUP, "g", (name, SET, "1")), 1)).responses
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "group.consumer.min.session.timeout.ms" in refused.error_message
    await bench.call(edit(GROUP, "g", (name, DELETE, None)), 1)
    assert await described() == default
    assert await listed() == []
    (nameless,) = (await bench.call(describe(GROUP, ""), 4)).results
    assert nameless.error_code == ErrorCode.INVALID_REQUEST


async def test_a_broker_setting_that_only_kafka_uses_is_kept_with_a_warning(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = "sasl.kerberos.min.time.before.relogin"
    (tried,) = (await bench.call(edit(BROKER, "1", (name, SET, "58000"), validate_only=True), 1)).responses
    assert (tried.error_code, caplog.messages) == (ErrorCode.NONE, [])
    (done,) = (await bench.call(edit(BROKER, "1", (name, SET, "58000")), 1)).responses
    assert done.error_code == ErrorCode.NONE
    assert f"{name} is a Kafka setting that Headrace does not use; it is ignored." in caplog.messages
    (row,) = (await bench.call(describe(BROKER, "1", name), 4)).results[0].configs
    assert (row.value, row.config_source) == ("58000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert row.config_type == ConfigType.LONG
    (unknown,) = (await bench.call(edit(BROKER, "1", ("no.such.setting", SET, "1")), 1)).responses
    assert unknown.error_code == ErrorCode.INVALID_CONFIG
    assert "no.such.setting" in unknown.error_message


async def test_no_more_of_a_resource_is_looked_at_than_it_can_have(bench: Any) -> None:
    """Tens of thousands held up everybody for 30 ms."""
    names = [f"x{number}" for number in range(2_000)]
    (answer,) = (await bench.call(edit(TOPIC, "t", *((name, SET, "1") for name in names)), 1)).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    legacy = alter_configs.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[alter_configs.AlterableConfig(name=name, value="1") for name in names],
    )
    (answer,) = (await bench.call(alter_configs.AlterConfigsRequest(resources=[legacy]), 2)).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST

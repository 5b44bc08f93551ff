"""The audit trail: a line for every change, who made it and how it ended; nothing secret, and not without end."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.env.real import RealDisk
from headrace.handlers import load_all
from headrace.handlers.registry import APIS
from headrace.node import Node
from headrace.security.acl import Operation
from headrace.server.audit import CHANGES, MAX_LINES
from headrace.server.audit_lines import pairs
from headrace.server.line_limit import MAX_KINDS
from headrace.testing.in_process import Client, connect, env_with
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import alter_client_quotas as quotas
from headrace.wire.messages import alter_user_scram_credentials as users
from headrace.wire.messages import create_acls as rules
from headrace.wire.messages import create_topics as creating
from headrace.wire.messages import delete_topics as deleting
from headrace.wire.messages import incremental_alter_configs as configs

load_all()


def fields(line: str) -> dict[str, str]:
    head, *words = shlex.split(line)
    assert head == "audit"
    return dict(word.split("=", 1) for word in words)


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    return [fields(record.getMessage()) for record in caplog.records if record.name == "headrace.audit"]


def test_a_line_can_be_taken_apart() -> None:
    line = pairs("changed", principal="User:a b", nothing=None, topic='x"y', configs="a=1,b=2", note="one\nline")
    assert "\n" not in line
    assert fields(line.replace("\\n", " ")) == {
        "event": "changed",
        "principal": "User:a b",
        "topic": 'x"y',
        "configs": "a=1,b=2",
        "note": "one line",
    }
    assert len(pairs("changed", topic="x" * 10_000)) < 1000


class Untold:
    """A setting that no line has room for: nobody asks for its value."""

    name = "x"

    @property
    def value(self) -> str:
        raise AssertionError("this is not shown")


def test_no_more_settings_are_looked_at_than_a_line_shows() -> None:
    """The line of 40,000 settings held up everybody for 25 ms, and one name of a megabyte of dots for minutes."""
    shown = [configs.AlterableConfig(name="retention.ms", value="1000")] * 40
    resource = SimpleNamespace(resource_type=2, resource_name="t", configs=[*shown, Untold()])
    tell, _ = CHANGES[ApiKey.INCREMENTAL_ALTER_CONFIGS]
    ((_, about),) = tell(SimpleNamespace(resources=[resource]))
    line = pairs("changed", configs=about["configs"])
    assert line.startswith("audit event=changed configs=retention.ms=1000,retention.ms=1000")
    assert line.endswith("...")
    resource.configs = [configs.AlterableConfig(name="a." * 500_000, value="secret")]
    ((_, about),) = tell(SimpleNamespace(resources=[resource]))
    assert "secret" not in pairs("changed", configs=about["configs"])


def test_what_administrators_do_is_told() -> None:
    """Every API that alters, creates or deletes with a right on the cluster, a topic or a group has its lines."""
    strong = {Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CREATE, Operation.DELETE}
    for key, api in APIS.items():
        if api.authorize is not None and api.authorize.operation in strong:
            assert key in CHANGES, f"{api.name} leaves no trace"


async def administrate(client: Client) -> None:
    topics = [
        creating.CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("t", "bad/name")
    ]
    await client.ask(creating.CreateTopicsRequest(topics=topics), creating.CreateTopicsResponse, 7)
    only_checked = creating.CreateTopicsRequest(topics=topics[:1], validate_only=True)
    await client.ask(only_checked, creating.CreateTopicsResponse, 7)
    config = configs.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = configs.AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
    await client.ask(
        configs.IncrementalAlterConfigsRequest(resources=[resource]), configs.IncrementalAlterConfigsResponse, 1
    )
    credential = users.ScramCredentialUpsertion(
        name="alice", mechanism=2, iterations=4096, salt=b"salt", salted_password=b"very secret"
    )
    await client.ask(
        users.AlterUserScramCredentialsRequest(upsertions=[credential]), users.AlterUserScramCredentialsResponse, 0
    )
    entity = [quotas.EntityData(entity_type="user", entity_name="alice")]
    operation = quotas.OpData(key="producer_byte_rate", value=1e6)
    entry = quotas.EntryData(entity=entity, ops=[operation])
    await client.ask(quotas.AlterClientQuotasRequest(entries=[entry]), quotas.AlterClientQuotasResponse, 1)
    rule = rules.AclCreation(
        resource_type=2, resource_name="t", principal="User:alice", host="*", operation=3, permission_type=3
    )
    await client.ask(rules.CreateAclsRequest(creations=[rule]), rules.CreateAclsResponse, 3)
    state = deleting.DeleteTopicState(name="t")
    await client.ask(deleting.DeleteTopicsRequest(topics=[state]), deleting.DeleteTopicsResponse, 6)


async def started(data: Path, **settings: str) -> tuple[Node, Client]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.build(flags={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data), **given})
    node = Node(env_with(RealDisk()), config)
    return node, await connect(await node.start())


async def test_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node, client = await started(tmp_path, authorizer_class_name="headrace", super_users="User:ANONYMOUS")
    try:
        with caplog.at_level(logging.INFO, "headrace.audit"):
            await administrate(client)
    finally:
        await node.stop()
    lines = told(caplog)
    who = {"principal": "User:ANONYMOUS", "host": "127.0.0.1", "client": "test"}
    assert all(who.items() <= line.items() for line in lines)
    shown = [{name: value for name, value in line.items() if name not in who} for line in lines]
    assert shown == [
        {"event": "changed", "api": "CreateTopics", "topic": "t", "partitions": "2"},
        {
            "event": "refused",
            "api": "CreateTopics",
            "topic": "bad/name",
            "partitions": "2",
            "result": "INVALID_TOPIC_EXCEPTION",
        },
        {
            "event": "changed",
            "api": "IncrementalAlterConfigs",
            "resource": "topic:t",
            "configs": "retention.ms=1000",
        },
        {
            "event": "changed",
            "api": "AlterUserScramCredentials",
            "user": "alice",
            "mechanism": "SCRAM-SHA-512",
            "password": "set",
        },
        {
            "event": "changed",
            "api": "AlterClientQuotas",
            "entity": "user=alice",
            "quotas": "producer_byte_rate=1e+06",
        },
        {
            "event": "changed",
            "api": "CreateAcls",
            "permission": "allow",
            "user": "User:alice",
            "operation": "read",
            "resource": "topic:t",
            "pattern": "literal",
            "from": "*",
        },
        {"event": "changed", "api": "DeleteTopics", "topic": "t"},
    ]
    assert "secret" not in caplog.text


async def test_who_may_not_is_told_and_not_without_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node, client = await started(tmp_path, authorizer_class_name="headrace", super_users="User:admin")
    topic = creating.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    try:
        with caplog.at_level(logging.INFO, "headrace.audit"):
            for _ in range(20):
                request = creating.CreateTopicsRequest(topics=[topic])
                await client.ask(request, creating.CreateTopicsResponse, 7)
    finally:
        await node.stop()
    denied = [line for line in told(caplog) if line["event"] == "denied"]
    assert denied[0]["principal"] == "User:ANONYMOUS"
    assert {line["resource"] for line in denied} <= {"cluster", "topic"}
    assert len(denied) < 20


async def test_a_huge_request_leaves_a_bounded_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node, client = await started(tmp_path)
    states = [deleting.DeleteTopicState(name=f"none-{number}") for number in range(MAX_LINES + 50)]
    try:
        with caplog.at_level(logging.INFO, "headrace.audit"):
            await client.ask(deleting.DeleteTopicsRequest(topics=states), deleting.DeleteTopicsResponse, 6)
    finally:
        await node.stop()
    lines = told(caplog)
    assert MAX_KINDS <= len(lines) <= MAX_KINDS + 2, "refused ones of more kinds are one kind"
    assert lines[-1]["more"] == "50"


@pytest.mark.parametrize(
    ("name", "is_shown"),
    [
        ("listener.name.plaintext.ssl.keystore.password", False),
        ("listener.name.plaintext.ssl.keystore.key", False),
        ("listener.name.plaintext.plain.sasl.jaas.config", False),
        ("ssl.keystore.password", False),
        ("SSL.Keystore.Password", False),
        ("ssl.keystore.pasword", False),
        ("listener.name.plaintext.max.connections", True),
        ("log.cleaner.threads", True),
    ],
)
async def test_sensitive_settings_of_brokers_are_hidden(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, is_shown: bool
) -> None:
    """Whether they are accepted or not: what is not known may be a mistyped password."""
    node, client = await started(tmp_path, authorizer_class_name="headrace", super_users="User:ANONYMOUS")
    config = configs.AlterableConfig(name=name, config_operation=0, value="1234567")
    resource = configs.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    request = configs.IncrementalAlterConfigsRequest(resources=[resource])
    try:
        with caplog.at_level(logging.INFO, "headrace.audit"):
            await client.ask(request, configs.IncrementalAlterConfigsResponse, 1)
    finally:
        await node.stop()
    (line,) = [line for line in told(caplog) if line["api"] == "IncrementalAlterConfigs"]
    assert line["configs"] == (f"{name}=1234567" if is_shown else f"{name}=(hidden)")
    assert is_shown or "1234567" not in caplog.text

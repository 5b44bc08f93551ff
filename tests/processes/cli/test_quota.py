"""Quota commands against a real broker."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from headrace.cli.main import command_line
from headrace.testing import Broker
from headrace.testing.pytest_plugin import StartBroker


def headrace(broker: Broker, *words: str) -> Result:
    return CliRunner().invoke(command_line, ["-b", broker.bootstrap_servers, *words])


def listed(broker: Broker, *words: str) -> list[dict[str, Any]]:
    found = headrace(broker, "quota", *words, "--format", "json")
    assert found.exit_code == 0, found.output
    rows: list[dict[str, Any]] = json.loads(found.stdout)
    return rows


def test_quotas_are_set_shown_and_removed(headrace_broker_factory: StartBroker) -> None:
    broker = headrace_broker_factory()
    done = headrace(broker, "quota", "set", "--user", "alice", "--produce", "10MB", "--fetch", "20MiB")
    assert done.exit_code == 0, done.output
    assert "producer_byte_rate=10000000" in done.output
    assert headrace(broker, "quota", "set", "--default-user", "-c", "app", "--requests", "12.5").exit_code == 0
    assert headrace(broker, "quota", "set", "--ip", "10.0.0.1", "--connections", "5").exit_code == 0
    rows = listed(broker, "list")
    assert len(rows) == 3
    (alice,) = listed(broker, "list", "--user", "alice")
    assert (alice["producer_byte_rate"], alice["consumer_byte_rate"]) == (10_000_000, 20 * 2**20)
    described_rows = listed(broker, "describe", "-u", "bob", "-c", "app")
    holds = {row["quota"]: (row["value"], row["from"]) for row in described_rows}
    assert holds == {"request_percentage": (12.5, "user <default>, client-id app")}
    assert "10,000,000" in headrace(broker, "quota", "list").output
    shown = headrace(broker, "quota", "describe", "-u", "alice").output.split()
    assert shown[shown.index("producer_byte_rate") + 1] == "10,000,000"
    some = headrace(broker, "quota", "delete", "--user", "alice", "--quota", "fetch", "--yes")
    assert some.exit_code == 0, some.output
    (alice,) = listed(broker, "list", "--user", "alice")
    assert alice["consumer_byte_rate"] is None
    assert headrace(broker, "quota", "delete", "--user", "alice", "--yes").exit_code == 0
    again = headrace(broker, "quota", "delete", "--user", "alice", "--yes")
    assert again.exit_code != 0
    assert "There are no such quotas of user alice." in again.output

    # Kafka's tool, in both of its ways to name an entity
    pair = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default")
    change = ("--alter", *pair, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
    altered = headrace(broker, "kafka-configs", *change)
    assert altered.exit_code == 0, altered.output
    assert listed(broker, "list", "--user", "alice")[0]["client_id"] == "<default>"
    described = headrace(broker, "kafka-configs", "--describe", "--user", "alice", "--client-defaults").output
    expected = (
        "Quota configs for user-principal 'alice', the default client-id are "
        "consumer_byte_rate=2048.0, producer_byte_rate=1024.0"
    )
    assert expected in described
    deletion = ("--alter", *pair, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    assert headrace(broker, "kafka-configs", *deletion).exit_code == 0
    assert not listed(broker, "list", "--user", "alice")
    every = headrace(broker, "kafka-configs", "--describe", "--entity-type", "ips").output
    assert "Quota configs for ip '10.0.0.1' are connection_creation_rate=5.0" in every

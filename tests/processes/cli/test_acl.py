"""ACL commands against a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import command_line
from headrace.testing import Broker
from headrace.testing.pytest_plugin import StartBroker


@pytest.fixture
def broker(headrace_broker_factory: StartBroker) -> Broker:
    return headrace_broker_factory({"authorizer.class.name": "headrace", "super.users": "User:ANONYMOUS"})


def acl(broker: Broker, *words: str) -> Result:
    return CliRunner().invoke(command_line, ["-b", broker.bootstrap_servers, "acl", *words])


def rules(broker: Broker, *words: str) -> list[dict[str, Any]]:
    found = acl(broker, "list", "--format", "json", *words)
    assert found.exit_code == 0, found.output
    listed: list[dict[str, Any]] = json.loads(found.stdout)
    return listed


def test_rules_are_added_listed_and_removed(broker: Broker) -> None:
    added = acl(broker, "add", "-u", "alice", "-t", "orders", "-g", "billing", "-o", "read")
    assert added.exit_code == 0, added.output
    assert "User:alice may read on topic orders." in added.output
    assert "User:alice may read on group billing." in added.output
    words = ("-u", "bob", "-t", "ord", "--prefix", "-o", "write", "--host", "10.0.0.0/8", "--deny")
    denied = acl(broker, "add", *words)
    assert "User:bob may not write on topics that begin with ord from 10.0.0.0/8." in denied.output
    assert len(rules(broker)) == 3
    both = acl(broker, "add", "-u", "carol", "-t", "x", "-g", "x", "-o", "read", "-o", "write").output
    assert both.count("User:carol may read on ") == 2
    assert both.count("User:carol may write on ") == 1, "nobody writes to a group"
    assert acl(broker, "remove", "-u", "carol", "--yes").exit_code == 0
    assert {one["principal"] for one in rules(broker, "-t", "orders")} == {"User:alice", "User:bob"}
    (only,) = rules(broker, "-u", "bob")
    assert (only["permission"], only["pattern"], only["host"]) == ("deny", "prefixed", "10.0.0.0/8")
    assert "User:alice" in acl(broker, "list").output
    removed = acl(broker, "remove", "-u", "alice", "--yes")
    assert removed.exit_code == 0, removed.output
    assert [one["principal"] for one in rules(broker)] == ["User:bob"]
    again = acl(broker, "remove", "-u", "alice", "--yes")
    assert again.exit_code != 0
    assert "No access rules match." in again.output


def test_a_broker_without_an_authorizer_says_so(headrace_broker_factory: StartBroker) -> None:
    found = acl(headrace_broker_factory(), "list")
    assert found.exit_code != 0
    assert "authorizer.class.name" in found.output

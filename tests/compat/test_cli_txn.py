"""`headrace txn` and `headrace kafka-transactions` against a real broker, ours or Apache Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.cli.common.failure import NOT_FOUND
from headrace.model.errors import ErrorCode
from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.test_cli import refused, run
from tests.compat.transaction_client import TransactionClient

NONE = ErrorCode.NONE
Cli = Callable[..., str]


@pytest.fixture
def cli(group_bootstrap: str) -> Cli:
    """Runs a command that must succeed; its standard output."""

    def call(*arguments: str) -> str:
        done = run(group_bootstrap, *arguments)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return call


@pytest.fixture
def topic(group_topic: MakeTopic) -> str:
    return group_topic(2)


@pytest.fixture
def client(group_bootstrap: str, topic: str) -> Iterator[TransactionClient]:
    """With a transaction that is open in one partition."""
    with TransactionClient(group_bootstrap, unique_name("x")) as made:
        made.find()
        made.init_until_ready()
        assert made.add(topic, 1) == [NONE]
        assert made.produce(topic, 1) is NONE
        yield made


def as_json(cli: Cli, *arguments: str) -> Any:
    return json.loads(cli("txn", *arguments, "--format", "json"))


def test_list(cli: Cli, client: TransactionClient) -> None:
    (found,) = as_json(cli, "list", client.id)
    assert (found["transactional_id"], found["state"], found["producer_id"]) == (
        client.id,
        "Ongoing",
        client.producer_id,
    )
    assert as_json(cli, "list", client.id, "--state", "Empty") == []
    assert as_json(cli, "list", client.id, "--longer-than", "1h") == []
    assert as_json(cli, "list", "--producer-id", str(client.producer_id)) == [found]
    assert re.search(rf"{client.id} +Ongoing +{client.producer_id}", cli("txn", "list"))


def test_a_state_that_does_not_exist(group_bootstrap: str, client: TransactionClient) -> None:
    refused(group_bootstrap, 1, "There is no state Open", "txn", "list", "--state", "Open")


def test_describe(cli: Cli, client: TransactionClient, topic: str) -> None:
    (found,) = as_json(cli, "describe", client.id)
    assert found["open_seconds"] >= 0
    assert {name: found[name] for name in ("state", "prepared", "timeout_ms", "partitions")} == {
        "state": "Ongoing",
        "prepared": False,
        "timeout_ms": 60_000,
        "partitions": [f"{topic}-1"],
    }


def test_an_id_that_nobody_knows(group_bootstrap: str, client: TransactionClient) -> None:
    refused(group_bootstrap, NOT_FOUND, "TRANSACTIONAL_ID_NOT_FOUND", "txn", "describe", unique_name("nobody"))


def test_producers(cli: Cli, client: TransactionClient, topic: str) -> None:
    (found,) = as_json(cli, "producers", topic)
    assert (found["partition"], found["producer_id"], found["transaction_start_offset"]) == (
        1,
        client.producer_id,
        0,
    )


def test_abort(cli: Cli, client: TransactionClient, group_bootstrap: str) -> None:
    ended = as_json(cli, "abort", client.id, "--yes")
    assert ended["state"] == "CompleteAbort"
    assert client.end() is ErrorCode.PRODUCER_FENCED
    refused(group_bootstrap, 1, "is open", "txn", "abort", client.id, "--yes")


@pytest.mark.headrace_only
def test_a_prepared_transaction_is_committed_by_name(cli: Cli, client: TransactionClient, topic: str) -> None:
    assert client.init(6, enable2_pc=True, keep_prepared_txn=True) is NONE
    (found,) = as_json(cli, "describe", client.id)
    assert (found["prepared"], found["timeout_ms"]) == (True, None)
    assert as_json(cli, "commit", client.id, "--yes")["state"] == "CompleteCommit"
    assert client.end(True, 5) is ErrorCode.PRODUCER_FENCED
    assert cli("topic", "consume", topic, "-e", "--isolation", "read_committed").split() == ["v"]


def test_what_hangs_is_found_and_aborted(cli: Cli, client: TransactionClient, topic: str) -> None:
    assert as_json(cli, "find-hanging", "-t", topic, "--idle", "0s") == [], "its coordinator knows it"
    place = ("--topic", topic, "--partition", "1", "--start-offset", "0")
    cli("txn", "abort", *place, "--yes")
    (found,) = as_json(cli, "producers", topic)
    assert found["transaction_start_offset"] is None


def test_the_tool_with_its_name(cli: Cli, client: TransactionClient, topic: str, group_bootstrap: str) -> None:
    def tool(*arguments: str) -> str:
        return cli("kafka-transactions", "--bootstrap-server", group_bootstrap, *arguments)

    number = str(client.producer_id)
    assert re.search(rf"{client.id} +\d+ +{number} +Ongoing", tool("list"))
    assert re.search(
        rf"{client.id} +{number} +0 +Ongoing +60000", tool("describe", "--transactional-id", client.id)
    )
    assert re.search(rf"^{number} +0 ", tool("describe-producers", "--topic", topic, "--partition", "1"), re.M)
    assert tool("find-hanging", "--topic", topic).startswith("Topic")
    tool("forceTerminateTransaction", "--transactionalId", client.id)
    client.until(lambda: client.describe().transaction_state, lambda state: state != "Ongoing")

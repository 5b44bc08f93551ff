"""What a user is told about each kind of failure, and the exit code that goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from headrace.cli.common.errors import explain_client, explain_kafka, missing_topic, sentence
from headrace.cli.common.failure import CommandError
from headrace.cli.common.login import read_security
from headrace.cli.common.rights import NEEDED
from headrace.cli.common.session import conclude, wait_until
from headrace.cli.main import command_line
from headrace.client.address import Address
from headrace.client.errors import (
    CannotReach,
    ClientError,
    ConnectionLost,
    NoneReachable,
    Reason,
    RequestTimedOut,
    connect_failure,
)
from headrace.client.view import ClusterView
from headrace.model.errors import ErrorCode, KafkaError

HIDDEN = ClusterView("c", 1, {}, {}, {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
HERE = Address("broker", 9092)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 4),
        (ErrorCode.GROUP_ID_NOT_FOUND, 4),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 5),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 5),
        (ErrorCode.SASL_AUTHENTICATION_FAILED, 5),
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, 5),
        (ErrorCode.REQUEST_TIMED_OUT, 124),
        (ErrorCode.INVALID_CONFIG, 1),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1),
    ],
)
def test_codes(code: ErrorCode, exit_code: int) -> None:
    told = explain_kafka(KafkaError(code), "topic t")
    assert told.code == exit_code
    assert code.name in told.message
    assert told.message.startswith("Topic t: ")


def test_no_rights_says_whom_to_ask() -> None:
    told = explain_kafka(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed"), "topic t")
    assert told.message == "Topic t: not allowed (TOPIC_AUTHORIZATION_FAILED)."
    assert told.advice == "Ask an administrator for rights on the topic (`headrace acl add`)."


def test_a_command_names_the_right_that_it_needs() -> None:
    with click.Context(click.Command("alter"), info_name="headrace topic alter"):
        told = explain_kafka(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "topic t")
    assert told.message == "Topic t: Not authorized to access this topic (TOPIC_AUTHORIZATION_FAILED)."
    assert told.advice is not None
    assert "needs describe and alter-configs on the topic: ask an administrator" in told.advice


def test_a_topic_that_was_refused_is_a_sentence() -> None:
    with pytest.raises(KafkaError) as refused:
        HIDDEN.topic("t")
    told = explain_kafka(refused.value)
    assert told.message == "Topic t: Not authorized to access this topic (TOPIC_AUTHORIZATION_FAILED)."


async def test_a_change_that_the_user_may_not_see_is_not_waited_for() -> None:
    """`topic create` by a user with nothing but `create` waited half a minute, and failed."""
    settings = SimpleNamespace(request_timeout_s=0)
    clock = SimpleNamespace(monotonic=iter(range(9)).__next__)
    cluster: Any = SimpleNamespace(metadata=hidden, settings=settings, env=SimpleNamespace(clock=clock))
    await wait_until(cluster, lambda view: "t" in view.topics, ["t"], "Creating t")


async def hidden(_: Sequence[str]) -> ClusterView:
    return HIDDEN


@pytest.mark.parametrize("command", NEEDED)
def test_rights_are_of_commands_that_exist(command: str) -> None:
    group, name = command.split()
    found = command_line.get_command(click.Context(command_line), group)
    assert isinstance(found, click.Group)
    assert found.get_command(click.Context(found), name) is not None


def test_a_question_keeps_its_mark() -> None:
    told = explain_kafka(KafkaError(ErrorCode.INVALID_CONFIG, "no retention.sm; did you mean retention.ms?"))
    assert told.message == "No retention.sm; did you mean retention.ms? (INVALID_CONFIG)"


def test_tls_to_a_broker_without_it_says_so() -> None:
    failure = connect_failure(HERE, ConnectionResetError(), 5, None)
    told = explain_client(NoneReachable([failure]))
    assert (
        told.message == "Cannot reach a broker at broker:9092: the connection was closed during the TLS handshake."
    )
    assert "leave security.protocol out" in (told.advice or "")


def test_a_misspelt_setting_of_a_client_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "securty.protocol=SSL\nacks=all\nsasl.mechanisms=PLAIN\nsasl.oauthbearer.token.endpoint.url=x\n"
    )
    assert read_security(path).tls is None
    said = capsys.readouterr().err
    assert said == f"Warning: {path}: securty.protocol is not used; did you mean security.protocol?\n"


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_told_with_its_address(reason: Reason) -> None:
    told = explain_client(NoneReachable([CannotReach(HERE, reason)]))
    assert told.code == 3
    assert "broker:9092" in told.message
    assert reason.value in told.message
    assert told.advice or reason is Reason.OTHER


@pytest.mark.parametrize(
    ("error", "exit_code", "part"),
    [
        (RequestTimedOut(HERE, "Metadata", 5), 124, "did not answer Metadata in 5 s"),
        (ConnectionLost(HERE), 3, "was lost"),
        (CannotReach(HERE, Reason.REFUSED), 3, "Cannot reach a broker at broker:9092"),
        (
            CannotReach(HERE, Reason.REFUSED, broker_id=2),
            3,
            "Broker 2 advertises an address that cannot be used: broker:9092",
        ),
    ],
)
def test_other_failures(error: ClientError, exit_code: int, part: str) -> None:
    told = explain_client(error)
    assert (told.code, part in told.message) == (exit_code, True)


def test_an_advertised_address_blames_the_listener() -> None:
    told = explain_client(CannotReach(HERE, Reason.UNKNOWN_HOST, broker_id=2))
    assert "advertised.listeners of broker 2" in (told.advice or "")


def test_a_missing_topic_names_the_nearest() -> None:
    assert missing_topic("ordres", ["payments", "orders"]).advice == "Did you mean orders?"
    assert "topic create x" in (missing_topic("x", ["payments"]).advice or "")
    assert missing_topic("x", []).code == 4
    assert "topic create nope" in (missing_topic("nope", ["copied"]).advice or ""), "not every name is near"


def test_some_of_several() -> None:
    missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    conclude({"a": None})
    conclude({})
    with pytest.raises(CommandError) as caught:
        conclude({"a": missing})
    assert caught.value.code == 4
    with pytest.raises(CommandError) as caught:
        conclude({"a": missing, "b": None})
    assert caught.value.code == 6
    assert "Done: b." in caught.value.message
    with pytest.raises(CommandError) as caught:
        conclude({"a": missing, "b": missing})
    assert caught.value.code == 4


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("there is no such topic", "There is no such topic."),
        ("can't be read?", "Can't be read?"),
        ("orders-0 in data: the disk is full", "orders-0 in data: the disk is full."),
        ("retention.ms: not a number.", "retention.ms: not a number."),
        ("", "."),
    ],
)
def test_names_keep_their_small_letters(text: str, written: str) -> None:
    assert sentence(text) == written

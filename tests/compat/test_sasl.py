"""Logging in with SASL: three clients and our own commands, with each mechanism, and what is refused."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from headrace.cli.main import command_line
from headrace.testing.process import BrokerProcess
from tests.compat.secured import (
    MECHANISMS,
    PASSWORDS,
    PLAIN_MODULE,
    SCRAM_MODULE,
    TIMEOUT_S,
    check_aiokafka,
    check_kafka_python,
    check_librdkafka,
)

pytestmark = pytest.mark.headrace_only


class SaslBroker:
    """One broker with a SASL listener and access rules, made from nothing as an operator does."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.bootstrap = f"127.0.0.1:{port}"
        self.settings = folder / "server.properties"
        plain = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        self.settings.write_text(
            f"listeners=SASL_PLAINTEXT://{self.bootstrap}\n"
            f"log.dirs={folder / 'data'}\n"
            "headrace.admin.port=0\n"
            "group.initial.rebalance.delay.ms=0\n"
            f"sasl.enabled.mechanisms={','.join(MECHANISMS)}\n"
            "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\n"
            f"listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN_MODULE} required {plain};\n"
            f"listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config={SCRAM_MODULE} required "
            f'username="admin" password="{PASSWORDS["admin"]}";\n'
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "super.users=User:admin\n"
        )
        for user, password in PASSWORDS.items():
            (folder / f"{user}.password").write_text(password + "\n")
            (folder / f"{user}.properties").write_text(
                "security.protocol=SASL_PLAINTEXT\n"
                "sasl.mechanism=SCRAM-SHA-512\n"
                f'sasl.jaas.config={SCRAM_MODULE} required username="{user}" password="{password}";\n'
            )

    def command(self, *words: str, user: str | None = "admin") -> Result:
        login = [] if user is None else ["--client-config", str(self.folder / f"{user}.properties")]
        return CliRunner().invoke(command_line, ["-b", self.bootstrap, *words, *login])

    def client(self, mechanism: str, user: str, password: str | None = None) -> dict[str, Any]:
        """For librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user] if password is None else password,
        }


class FileBroker(BrokerProcess):
    """Started with a settings file."""

    settings: Path

    def command(self) -> list[str]:
        return [*super().command()[:4], str(self.settings)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    folder = tmp_path_factory.mktemp("sasl")
    (folder / "run").mkdir()
    process = FileBroker(root=folder / "run")
    made = SaslBroker(folder, process.port)
    process.settings = made.settings
    for mechanism in MECHANISMS[1:]:
        added = CliRunner().invoke(
            command_line,
            ["user", "add", "admin", "-m", mechanism, "--password-file", str(folder / "admin.password"),
             "--offline", str(made.settings)],
        )  # fmt: skip
        assert added.exit_code == 0, added.output
    with process:
        for mechanism in MECHANISMS[1:]:
            words = ("user", "add", "alice", "-m", mechanism, "--password-file", str(folder / "alice.password"))
            added = made.command(*words)
            assert added.exit_code == 0, added.output
        assert made.command("topic", "create", "orders").exit_code == 0
        for rule in ("-t orders -o read", "-t orders -o write", "-g g --prefix -o read"):
            ruled = made.command("acl", "add", "-u", "alice", *rule.split())
            assert ruled.exit_code == 0, ruled.output
        yield made


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(broker: SaslBroker, mechanism: str) -> None:
    check_librdkafka(broker.client(mechanism, "alice"), mechanism.encode())


def python_login(mechanism: str) -> dict[str, Any]:
    """For kafka-python and aiokafka."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS["alice"],
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: SaslBroker, mechanism: str) -> None:
    check_kafka_python(bootstrap_servers=broker.bootstrap, **python_login(mechanism))


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(broker: SaslBroker, mechanism: str) -> None:
    await check_aiokafka(bootstrap_servers=broker.bootstrap, **python_login(mechanism))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_look_the_same(broker: SaslBroker, mechanism: str) -> None:
    for user in ("alice", "nobody"):
        found: list[str] = []
        producer = Producer(
            broker.client(mechanism, user, "wrong")
            | {"reconnect.backoff.ms": 1000, "error_cb": lambda error, seen=found: seen.append(error.str())}
        )
        while not any("Authentication failed: wrong credentials" in text for text in found):
            producer.poll(1.0)
    (broker.folder / "wrong.properties").write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.username=alice\nsasl.password=wrong\n"
    )
    refused = broker.command("topic", "list", user="wrong")
    assert refused.exit_code != 0
    assert "SASL_AUTHENTICATION_FAILED" in refused.output


def test_our_own_commands(broker: SaslBroker) -> None:
    listed = broker.command("topic", "list", user="alice")
    assert listed.exit_code == 0, listed.output
    assert "orders" in listed.output
    users = broker.command("user", "list")
    assert users.output.count("alice") == 2
    assert "secret" not in users.output
    refused = broker.command("user", "list", user="alice")
    assert refused.exit_code != 0
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.output
    assert broker.command("topic", "list", user=None).exit_code != 0
    tool = CliRunner().invoke(
        command_line,
        ["kafka-topics", "--bootstrap-server", broker.bootstrap, "--list",
         "--command-config", str(broker.folder / "alice.properties")],
    )  # fmt: skip
    assert tool.output.strip() == "orders"


def test_offline_is_for_before_the_first_start(broker: SaslBroker) -> None:
    words = ("user", "add", "eve", "--password-file", str(broker.folder / "alice.password"))
    late = CliRunner().invoke(command_line, [*words, "--offline", str(broker.settings)])
    assert late.exit_code != 0
    assert "--offline" in late.output


def test_a_removed_user_logs_in_no_more(broker: SaslBroker) -> None:
    words = ("user", "add", "bob", "--password-file", str(broker.folder / "alice.password"))
    assert broker.command(*words).exit_code == 0
    settings = broker.client("SCRAM-SHA-512", "bob", PASSWORDS["alice"])
    AdminClient(settings).list_topics(timeout=TIMEOUT_S)
    assert broker.command("user", "remove", "bob", "--yes").exit_code == 0
    (broker.folder / "bob.properties").write_text(
        "\n".join(f"{name}={value}" for name, value in settings.items() if name != "bootstrap.servers") + "\n"
    )
    refused = broker.command("topic", "list", user="bob")
    assert "SASL_AUTHENTICATION_FAILED" in refused.output


def test_no_secret_is_in_the_data_or_the_log(broker: SaslBroker) -> None:
    for path in broker.folder.rglob("*"):
        if path.is_file() and path.parent != broker.folder:
            content = path.read_bytes()
            for password in PASSWORDS.values():
                assert password.encode() not in content, path


@pytest.mark.parametrize(
    "first", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), b"GET / HTTP/1.1\r\n\r\n",
              struct.pack(">ihhih", 14, 3, 1, 7, -1) + b"\xff\xff\xff\xff", b"\x00\x00\x00\x0a\x00\x24"],
)  # fmt: skip
def test_who_does_not_log_in_gets_nothing(broker: SaslBroker, first: bytes) -> None:
    """TLS, HTTP, a Metadata request, half a frame: no answer, and the broker lives."""
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as raw:
        raw.sendall(first)
        raw.shutdown(socket.SHUT_WR)
        assert raw.recv(1000) == b""
    assert broker.command("topic", "list", user="alice").exit_code == 0

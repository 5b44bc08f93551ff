"""A broker with TLS, made from nothing: authority, certificates, listeners with and without SASL, access rules.

And what each client does with a broker that it may use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiokafka
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from headrace.cli.main import command_line
from headrace.env.certificates import make_authority, make_certificate
from headrace.testing.process import BrokerProcess, free_port

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS = {"admin": "admin's secret", "alice": "alice=secret,1"}
STORE_PASSWORD = "of the store"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MTLS = "SSL"
TIMEOUT_S = 60.0


def check_librdkafka(settings: dict[str, Any], value: bytes) -> None:
    """It may write and read orders, and sees no other topic."""
    producer = Producer(settings)
    errors: list[object] = []
    producer.produce("orders", value, on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None]
    consumer = Consumer({**settings, "group.id": f"g-{value.decode()}", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["orders"])
        values: list[bytes | None] = []
        while value not in values:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            assert message.error() is None, message.error()
            values.append(message.value())
    finally:
        consumer.close()
    assert set(AdminClient(settings).list_topics(timeout=TIMEOUT_S).topics) == {"orders"}


def check_kafka_python(**settings: Any) -> None:
    producer = KafkaProducer(**settings)
    try:
        assert producer.send("orders", b"p").get(TIMEOUT_S).offset >= 0
        with pytest.raises(PythonKafkaError):
            producer.send("forbidden", b"p").get(TIMEOUT_S)
    finally:
        producer.close()


async def check_aiokafka(**settings: Any) -> None:
    producer = aiokafka.AIOKafkaProducer(**settings)
    await producer.start()
    try:
        assert (await producer.send_and_wait("orders", b"a")).offset >= 0
    finally:
        await producer.stop()


class FileBroker(BrokerProcess):
    """Started with a settings file."""

    settings: Path

    def command(self) -> list[str]:
        return [*super().command()[:4], str(self.settings)]


class TlsBroker(FileBroker):
    """SASL_SSL on one port and SSL with client certificates on another, each with a key store of another type."""

    def __init__(self, folder: Path) -> None:
        (folder / "run").mkdir()
        super().__init__(root=folder / "run")
        self.folder = folder
        self.settings = folder / "server.properties"
        self.ports = {"SASL_SSL": self.port, MTLS: free_port()}
        self.authority = make_authority("Headrace test")
        self._write_certificates()
        self.settings.write_text("\n".join(self._settings_lines()) + "\n")

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def _write_certificates(self) -> None:
        folder = self.folder
        broker = make_certificate(self.authority, "CN=broker,O=Headrace", ("127.0.0.1", "localhost"))
        (folder / "ca.pem").write_text(self.authority.pem)
        (folder / "broker.pem").write_text(broker.store)
        (folder / "broker.p12").write_bytes(broker.pkcs12(STORE_PASSWORD))
        for user in PASSWORDS:
            shown = make_certificate(self.authority, f"CN={user.title()},OU=clients,O=Headrace")
            (folder / f"{user}.pem").write_text(shown.pem)
            (folder / f"{user}.key").write_text(shown.key)
            (folder / f"{user}.store.pem").write_text(shown.store)
            (folder / f"{user}.password").write_text(PASSWORDS[user] + "\n")
            (folder / f"{user}.properties").write_text(
                "security.protocol=SASL_SSL\n"
                "sasl.mechanism=SCRAM-SHA-512\n"
                f'sasl.jaas.config={SCRAM_MODULE} required username="{user}" password="{PASSWORDS[user]}";\n'
                f"ssl.truststore.type=PEM\nssl.truststore.location={folder / 'ca.pem'}\n"
            )
            (folder / f"{user}.mtls.properties").write_text(
                "security.protocol=SSL\n"
                f"ssl.truststore.type=PEM\nssl.truststore.location={folder / 'ca.pem'}\n"
                f"ssl.keystore.type=PEM\nssl.keystore.location={folder / f'{user}.store.pem'}\n"
            )

    def _settings_lines(self) -> list[str]:
        plain = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        own = f'username="admin" password="{PASSWORDS["admin"]}"'
        return [
            f"listeners=SASL_SSL://127.0.0.1:{self.port},SSL://127.0.0.1:{self.ports[MTLS]}",
            "security.inter.broker.protocol=SASL_SSL",
            f"log.dirs={self.folder / 'data'}",
            "headrace.admin.port=0",
            "group.initial.rebalance.delay.ms=0",
            "headrace.tls.reload.interval.ms=50",
            "ssl.keystore.type=PKCS12",
            f"ssl.keystore.location={self.folder / 'broker.p12'}",
            f"ssl.keystore.password={STORE_PASSWORD}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.folder / 'ca.pem'}",
            "listener.name.ssl.ssl.keystore.type=PEM",
            f"listener.name.ssl.ssl.keystore.location={self.folder / 'broker.pem'}",
            "ssl.client.auth=required",
            "ssl.principal.mapping.rules=RULE:^CN=(.*?),OU=clients,.*$/$1/L,DEFAULT",
            f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
            "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512",
            f"listener.name.sasl_ssl.plain.sasl.jaas.config={PLAIN_MODULE} required {plain};",
            f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={SCRAM_MODULE} required {own};",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:admin",
        ]

    def set_up(self) -> None:
        """Users, a topic, and what alice may."""
        for mechanism in MECHANISMS[1:]:
            words = [
                "user",
                "add",
                "alice",
                "-m",
                mechanism,
                "--password-file",
                str(self.folder / "alice.password"),
            ]
            _must(self.run(*words))
        _must(self.run("topic", "create", "orders"))
        for rule in ("-t orders -o read", "-t orders -o write", "-g g --prefix -o read"):
            _must(self.run("acl", "add", "-u", "alice", *rule.split()))

    def add_first_users(self) -> None:
        for mechanism in MECHANISMS[1:]:
            words = [
                "user",
                "add",
                "admin",
                "-m",
                mechanism,
                "--password-file",
                str(self.folder / "admin.password"),
            ]
            _must(CliRunner().invoke(command_line, [*words, "--offline", str(self.settings)]))

    def run(self, *words: str, config: str = "admin.properties", listener: str = "SASL_SSL") -> Result:
        """A command of ours."""
        login = ["--client-config", str(self.folder / config)]
        return CliRunner().invoke(command_line, ["-b", self.address(listener), *words, *login])

    def librdkafka(self, mechanism: str, user: str = "alice", password: str | None = None) -> dict[str, Any]:
        """`mechanism` is one of SASL, or SSL for a certificate."""
        common = {"ssl.ca.location": str(self.folder / "ca.pem")}
        if mechanism == MTLS:
            return common | {
                "bootstrap.servers": self.address(MTLS),
                "security.protocol": "SSL",
                "ssl.certificate.location": str(self.folder / f"{user}.pem"),
                "ssl.key.location": str(self.folder / f"{user}.key"),
            }
        return common | {
            "bootstrap.servers": self.address("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user] if password is None else password,
        }


def _must(result: Result) -> None:
    assert result.exit_code == 0, result.output

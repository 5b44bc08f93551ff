"""TLS with real clients: server certificates, client certificates, SASL over it, and what is refused."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException

from headrace.cli.main import command_line
from headrace.client.errors import ClientError
from headrace.client.security import client_security
from headrace.config.properties import parse_properties
from headrace.env.certificates import make_authority, make_certificate
from headrace.spark.client.cluster import BlockingCluster
from headrace.spark.client.connection import ClusterSettings, readable
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.compat.confluent_admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.compat.secured import (
    MECHANISMS,
    MTLS,
    PASSWORDS,
    TIMEOUT_S,
    TlsBroker,
    check_aiokafka,
    check_kafka_python,
    check_librdkafka,
)

pytestmark = pytest.mark.headrace_only
WAYS = (*MECHANISMS, MTLS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    made = TlsBroker(tmp_path_factory.mktemp("tls"))
    made.add_first_users()
    with made:
        made.set_up()
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_librdkafka(broker: TlsBroker, way: str) -> None:
    check_librdkafka(broker.librdkafka(way), way.encode())


def python_settings(broker: TlsBroker, way: str) -> dict[str, Any]:
    """For kafka-python and aiokafka, but for how they are given certificates."""
    if way == MTLS:
        return {"bootstrap_servers": broker.address(MTLS), "security_protocol": "SSL"}
    return {
        "bootstrap_servers": broker.address("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": way,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS["alice"],
    }


@pytest.mark.parametrize("way", WAYS)
def test_kafka_python(broker: TlsBroker, way: str) -> None:
    files: dict[str, Any] = {"ssl_cafile": str(broker.folder / "ca.pem")}
    if way == MTLS:
        files = files | {
            "ssl_certfile": str(broker.folder / "alice.pem"),
            "ssl_keyfile": str(broker.folder / "alice.key"),
        }
    check_kafka_python(**python_settings(broker, way), **files)


@pytest.mark.parametrize("way", WAYS)
async def test_aiokafka(broker: TlsBroker, way: str) -> None:
    context = ssl.create_default_context(cafile=str(broker.folder / "ca.pem"))
    if way == MTLS:
        context.load_cert_chain(broker.folder / "alice.pem", broker.folder / "alice.key")
    await check_aiokafka(**python_settings(broker, way), ssl_context=context)


def test_our_commands(broker: TlsBroker) -> None:
    for config, listener in (("alice.properties", "SASL_SSL"), ("alice.mtls.properties", MTLS)):
        listed = broker.run("topic", "list", config=config, listener=listener)
        assert listed.exit_code == 0, listed.output
        assert "orders" in listed.output
        refused = broker.run("topic", "create", "other", config=config, listener=listener)
        assert refused.exit_code != 0
        assert "alice" in broker.run("user", "list").output


def test_connectors(broker: TlsBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCRAM over TLS: a source with `client` in its file, a sink with `--client-config`, and who is refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text("id,name\n1,Ada\n2,Grace\n")
    (tmp_path / "ca.pem").write_bytes((broker.folder / "ca.pem").read_bytes())
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": "${SECRET}",
        "ssl.ca.location": "ca.pem",
    }
    config = {"directory": ".", "pattern": "*.csv", "topic": "people", "key": "id", "settle": "0s"}
    source = {"connector": "files-source", "partitions": 1, "bootstrap": broker.address("SASL_SSL")}
    (tmp_path / "people.yaml").write_text(json.dumps({**source, "client": client, "config": config}))
    table = {"connection": "sqlite:people.db", "key": ["id"], "columns": {"id": "integer", "name": "text"}}
    sink = {"connector": "table-sink", "topics": ["people"], "config": table}
    (tmp_path / "table.yaml").write_text(json.dumps(sink))

    def connector(*words: str) -> Result:
        return CliRunner().invoke(command_line, ["connector", *words])

    monkeypatch.setenv("SECRET", "wrong")
    refused = connector("run", "--once", "people.yaml")
    assert "Error: Authentication failed" in refused.output, (refused.output, refused.exception)
    monkeypatch.setenv("SECRET", PASSWORDS["admin"])
    copied = connector("run", "--once", "people.yaml")
    assert "people: 2 records copied." in copied.output, (copied.output, copied.exception)
    different = connector("run", "--once", "people.yaml", "table.yaml")
    assert "different `client` settings" in different.output
    kept = broker.run("connector", "run", "--once", "table.yaml")
    assert kept.exit_code == 0, (kept.output, kept.exception)
    with closing(sqlite3.connect("people.db")) as people:
        assert people.execute("SELECT id, name FROM people ORDER BY id").fetchall() == [(1, "Ada"), (2, "Grace")]
    removed = connector("remove", "--yes", "people.yaml")
    assert removed.exit_code == 0, (removed.output, removed.exception)


def test_the_blocking_client(broker: TlsBroker) -> None:
    """What Spark's tasks use: several answers may be in one record of TLS, and none may wait for the next."""
    security = client_security(parse_properties((broker.folder / "alice.properties").read_text()).get, os.urandom)
    settings = ClusterSettings(broker.address("SASL_SSL"), request_timeout_s=TIMEOUT_S, security=security)
    with closing(BlockingCluster(settings)) as cluster:
        assert set(cluster.topics()) == {"orders"}
        connection = cluster.take(1)
        assert connection.secured
        tickets = [
            connection.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
            for _ in range(50)
        ]
        while not connection.has_input():
            assert readable([connection], TIMEOUT_S)
        for ticket in tickets:
            assert readable([connection], TIMEOUT_S) == [connection]
            connection.receive(ticket, ApiVersionsResponse)
        assert not connection.buffered
        connection.close()
    wrong = replace(settings, bootstrap=broker.address(MTLS), connect_timeout_s=TIMEOUT_S)
    with pytest.raises(ClientError, match="the TLS connection was refused"), closing(BlockingCluster(wrong)) as it:
        it.topics()


def test_a_command_says_what_is_wrong(broker: TlsBroker) -> None:
    def said(text: str, listener: str = "SASL_SSL") -> str:
        (broker.folder / "wrong.properties").write_text(text)
        result = broker.run("topic", "list", config="wrong.properties", listener=listener)
        assert result.exit_code != 0
        return result.output

    other = make_authority("Headrace test")
    (broker.folder / "other.pem").write_text(other.pem)
    assert "its certificate is not accepted" in said(
        f"security.protocol=SSL\nssl.ca.location={broker.folder / 'other.pem'}\n", MTLS
    )
    assert "the TLS connection was refused" in said(
        f"security.protocol=SSL\nssl.ca.location={broker.folder / 'ca.pem'}\n", MTLS
    )
    assert "expects TLS" in said("security.protocol=PLAINTEXT\n")
    assert "No such file" in said("security.protocol=SSL\nssl.ca.location=/nowhere.pem\n", MTLS)
    assert "TLSv1.1 is not secure" in said("security.protocol=SSL\nssl.enabled.protocols=TLSv1.1\n", MTLS)


@pytest.mark.parametrize("wrong", ["password", "authority", "no certificate", "foreign certificate", "host"])
def test_who_is_refused(broker: TlsBroker, wrong: str, tmp_path: Path) -> None:
    settings = broker.librdkafka(MTLS)
    if wrong == "password":
        settings = broker.librdkafka("SCRAM-SHA-512", password="guessed")
    elif wrong == "authority":
        (tmp_path / "ca.pem").write_text(make_authority("Headrace test").pem)
        settings["ssl.ca.location"] = str(tmp_path / "ca.pem")
    elif wrong == "no certificate":
        del settings["ssl.certificate.location"], settings["ssl.key.location"]
    elif wrong == "foreign certificate":
        forged = make_certificate(make_authority("Headrace test"), "CN=Admin,OU=clients,O=Headrace")
        (tmp_path / "forged.pem").write_text(forged.store)
        settings["ssl.certificate.location"] = settings["ssl.key.location"] = str(tmp_path / "forged.pem")
    else:
        settings["bootstrap.servers"] = broker.address(MTLS).replace("127.0.0.1", "ip6-localhost-is-not-in-it")
    errors: list[object] = []
    settings |= {"error_cb": errors.append, "log_level": 0}
    admin = AdminClient(settings)
    deadline = time.monotonic() + TIMEOUT_S
    while not errors:
        assert time.monotonic() < deadline
        admin.poll(0.05)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.2)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_no_old_versions(broker: TlsBroker, version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", broker.ports["SASL_SSL"]), TIMEOUT_S) as tcp,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(tcp)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions(broker: TlsBroker, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(broker.folder / "ca.pem"))
    context.minimum_version = context.maximum_version = version
    tcp = socket.create_connection(("127.0.0.1", broker.ports["SASL_SSL"]), TIMEOUT_S)
    with context.wrap_socket(tcp, server_hostname="localhost") as tls:
        assert tls.version() == version.name.replace("_", ".")


def test_certificates_by_dynamic_settings(broker: TlsBroker) -> None:
    """IncrementalAlterConfigs on a listener's key store: new connections see it, and what is broken is refused."""
    admin = AdminClient(broker.librdkafka("SCRAM-SHA-512", "admin"))
    name = "listener.name.sasl_ssl.ssl.keystore"
    other = make_certificate(broker.authority, "CN=other,O=Headrace", ("127.0.0.1", "localhost"))
    (broker.folder / "other.store.pem").write_text(other.store)

    def alter(**settings: str | None) -> None:
        entries = [
            ConfigEntry(
                f"{name}.{key}",
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result(TIMEOUT_S)

    with pytest.raises(KafkaException, match="No such file"):
        alter(type="PEM", location="/nowhere.pem")
    with pytest.raises(KafkaException, match="is PKCS12"):
        alter(type="PEM")
    assert shown_name(broker, "SASL_SSL") == "broker"
    alter(type="PEM", location=str(broker.folder / "other.store.pem"), password="not needed")
    wait_for_name(broker, "SASL_SSL", "other")
    (described,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    settings = described.result(TIMEOUT_S)
    assert settings[f"{name}.location"].value == str(broker.folder / "other.store.pem")
    assert settings[f"{name}.password"].value is None
    alter(type=None, location=None, password=None)
    wait_for_name(broker, "SASL_SSL", "broker")


def test_certificates_by_new_files(broker: TlsBroker) -> None:
    """A renewal writes the file anew; nothing else need be done."""
    path = broker.folder / "broker.pem"
    before = path.read_text()
    renewed = make_certificate(broker.authority, "CN=renewed,O=Headrace", ("127.0.0.1", "localhost"))
    (broker.folder / "renewed.pem").write_text(renewed.store)
    (broker.folder / "renewed.pem").rename(path)
    wait_for_name(broker, MTLS, "renewed")
    path.write_text(before)


def shown_name(broker: TlsBroker, listener: str) -> str:
    """The common name of the certificate that a listener shows now."""
    context = ssl.create_default_context(cafile=str(broker.folder / "ca.pem"))
    context.load_cert_chain(broker.folder / "alice.store.pem")
    tcp = socket.create_connection(("127.0.0.1", broker.ports[listener]), TIMEOUT_S)
    with context.wrap_socket(tcp, server_hostname="localhost") as tls:
        certificate: Any = tls.getpeercert()
    return str(certificate["subject"][-1][0][1])


def wait_for_name(broker: TlsBroker, listener: str, name: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while shown_name(broker, listener) != name:
        assert time.monotonic() < deadline
        time.sleep(0.05)

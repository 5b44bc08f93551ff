"""Logging in with OAUTHBEARER: three clients and our own commands, a key that is exchanged, a token that ends."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiokafka
import jwt
import pytest
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

import headrace.client.connection as connection_module
from headrace.cli.main import command_line
from headrace.client.address import parse_bootstrap
from headrace.client.connection import ClientSettings, open_connection
from headrace.client.errors import CannotReach
from headrace.client.login import ClientLogin
from headrace.client.security import client_security
from headrace.config.broker_config import BrokerConfig
from headrace.env.real import real_env
from headrace.metadata.image import Endpoint
from headrace.outside import real_outside
from headrace.spark.client.cluster import BlockingCluster
from headrace.spark.client.connection import ClusterSettings
from headrace.testing.process import BrokerProcess
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.compat.issuer import AUDIENCE, CLIENT, ISSUER, SECRET, Issuer, IssuerServer

pytestmark = pytest.mark.headrace_only
TIMEOUT_S = 60.0
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class OAuthBroker:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.issuer = Issuer(folder)
        self.bootstrap = f"127.0.0.1:{port}"
        (folder / "server.properties").write_text(
            f"listeners=SASL_PLAINTEXT://{self.bootstrap}\n"
            "group.initial.rebalance.delay.ms=0\n"
            f"log.dirs={folder / 'data'}\n"
            "headrace.admin.port=0\n"
            "sasl.enabled.mechanisms=OAUTHBEARER,SCRAM-SHA-512\n"
            f"listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config={SCRAM_MODULE} required "
            'username="admin" password="x";\n'
            f"sasl.oauthbearer.jwks.endpoint.url=file://{self.issuer.jwks}\n"
            f"sasl.oauthbearer.expected.issuer={ISSUER}\n"
            f"listener.name.sasl_plaintext.sasl.oauthbearer.expected.audience=kafka,{AUDIENCE}\n"
            "connection.failed.authentication.delay.ms=10\n"
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "super.users=User:admin;User:alice\n"
        )

    def credentials(self, server: IssuerServer) -> dict[str, str]:
        """The settings of a client whose tokens come from the issuer, for its id and secret."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": server.url("token"),
            "sasl.oauthbearer.client.credentials.client.id": CLIENT,
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        }

    def command(self, *words: str, token: str | None = None) -> Result:
        (self.folder / "token").write_text(self.issuer.token() if token is None else token)
        settings = self.folder / "client.properties"
        settings.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.oauthbearer.token.endpoint.url=file://{self.folder / 'token'}\n"
        )
        return CliRunner().invoke(command_line, ["-b", self.bootstrap, *words, "--client-config", str(settings)])


class FileBroker(BrokerProcess):
    """Started with a settings file."""

    settings: Path

    def command(self) -> list[str]:
        return [*super().command()[:4], str(self.settings)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthBroker]:
    folder = tmp_path_factory.mktemp("oauth")
    (folder / "run").mkdir()
    process = FileBroker(root=folder / "run")
    made = OAuthBroker(folder, process.port)
    process.settings = folder / "server.properties"
    with process:
        created = made.command("topic", "create", "orders", "-p", "1")
        assert created.exit_code == 0, created.output
        yield made


def librdkafka(broker: OAuthBroker, make: Callable[[], str], **more: Any) -> dict[str, Any]:
    def callback(config: str) -> tuple[str, float]:
        token = make()
        return token, jwt.decode(token, options={"verify_signature": False})["exp"]

    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": callback,
        **more,
    }


def test_librdkafka(broker: OAuthBroker) -> None:
    producer = Producer(librdkafka(broker, broker.issuer.token))
    producer.produce("orders", b"from librdkafka")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(
        librdkafka(broker, broker.issuer.token, **{"group.id": "g", "auto.offset.reset": "earliest"})
    )
    consumer.subscribe(["orders"])
    found = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert found is not None
    assert found.error() is None


def python_login(tokens: object) -> dict[str, Any]:
    """For kafka-python and aiokafka."""
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    return {**login, "sasl_oauth_token_provider": tokens}


def test_kafka_python(broker: OAuthBroker) -> None:
    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return broker.issuer.token()

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **python_login(Tokens()))
    producer.send("orders", b"from kafka-python").get(TIMEOUT_S)
    producer.close()


async def test_aiokafka(broker: OAuthBroker) -> None:
    class Tokens(AsyncTokenProvider):
        async def token(self) -> str:
            return broker.issuer.token()

    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **python_login(Tokens()))
    await producer.start()
    try:
        await asyncio.wait_for(producer.send_and_wait("orders", b"from aiokafka"), TIMEOUT_S)
    finally:
        await producer.stop()


def test_who_the_token_names_counts(broker: OAuthBroker) -> None:
    """Rights are those of its subject; and a token that is not good is refused in words that say nothing."""
    assert broker.command("topic", "describe", "orders").exit_code == 0
    other = broker.command("topic", "describe", "orders", token=broker.issuer.token("bob"))
    assert other.exit_code != 0
    for bad in (
        broker.issuer.token(seconds=-120),
        broker.issuer.token(aud="others"),
        broker.issuer.token(iss="others"),
        "not.a.token",
    ):
        refused = broker.command("topic", "list", token=bad)
        assert refused.exit_code != 0
        assert "Authentication failed" in refused.output or "SASL_AUTHENTICATION_FAILED" in refused.output


def test_keys_may_be_exchanged(broker: OAuthBroker) -> None:
    """Keys are read again because of an unknown one at most every ten seconds: until then it is refused."""
    broker.issuer.exchange_keys("second")
    deadline = time.monotonic() + TIMEOUT_S
    while broker.command("topic", "list").exit_code != 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)


async def test_a_session_ends_with_its_token_unless_it_is_renewed(
    broker: OAuthBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-368: our own client logs in again in time, and goes on on the same connection."""
    monkeypatch.setattr(connection_module, "LOG_IN_AGAIN_AFTER", 0.02)  # long before its time, however slow we are
    asked: list[str] = []

    def make() -> str:
        asked.append(broker.issuer.token(seconds=60))
        return asked[-1]

    login = ClientLogin("OAUTHBEARER", "", "", real_env().rng.bytes, make)
    (address,) = parse_bootstrap(broker.bootstrap)
    connection = await open_connection(address, ClientSettings(login=login))
    assert 0 < connection._protocol.session_ms <= 60_000
    while len(asked) < 3:
        answer = await connection.request(MetadataRequest(topics=None), MetadataResponse)
        assert "orders" in [topic.name for topic in answer.topics]
        await asyncio.sleep(0.1)
    connection.close()


def test_client_credentials_of_a_command_and_of_the_blocking_client(broker: OAuthBroker) -> None:
    """The blocking client is what tasks of Spark use."""
    with closing(IssuerServer(broker.issuer)) as server:
        given = broker.credentials(server)
        path = broker.folder / "credentials.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        words = ["-b", broker.bootstrap, "topic", "list", "--client-config", str(path)]
        listed = CliRunner().invoke(command_line, words)
        assert listed.exit_code == 0, listed.output
        assert "orders" in listed.output
        security = client_security(given.get, os.urandom)
        settings = ClusterSettings(broker.bootstrap, request_timeout_s=TIMEOUT_S, security=security)
        with closing(BlockingCluster(settings)) as cluster:
            assert "orders" in cluster.topics()
        assert len(server.requests) >= 2
        path.write_text(path.read_text().replace(SECRET, "guessed"))
        refused = CliRunner().invoke(command_line, words)
        assert refused.exit_code != 0
        assert "did not issue a token: HTTP Error 401" in refused.output


async def test_an_issuer_that_hangs_does_not_stop_the_loop(broker: OAuthBroker) -> None:
    with closing(IssuerServer(broker.issuer)) as server:
        server.go.clear()
        security = client_security(broker.credentials(server).get, os.urandom)
        (address,) = parse_bootstrap(broker.bootstrap)
        opening = asyncio.ensure_future(open_connection(address, ClientSettings(login=security.login)))
        async with asyncio.timeout(TIMEOUT_S):
            while not server.requests:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        assert not opening.done()
        server.go.set()
        connection = await opening
        connection.close()


async def test_a_broker_asks_for_one_token_for_all_its_connections(broker: OAuthBroker) -> None:
    """Until one is refused: then it asks again."""
    with closing(IssuerServer(broker.issuer)) as server:
        texts = {
            "node.id": "7",
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(broker.folder / "other"),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{broker.issuer.jwks}",
            **{name: value for name, value in broker.credentials(server).items() if "oauthbearer" in name},
        }
        connect = real_outside(BrokerConfig.build(file=texts)).connect
        (address,) = parse_bootstrap(broker.bootstrap)
        endpoint = Endpoint("SASL_PLAINTEXT", address.host, address.port, "SASL_PLAINTEXT")
        for _ in range(3):
            (await connect(endpoint)).close()
        assert server.requests == ["/token"]

        server.seconds = -3600
        connect = real_outside(BrokerConfig.build(file=texts)).connect
        for _ in range(2):
            with pytest.raises(CannotReach, match="refuses this broker's login"):
                await connect(endpoint)
        server.seconds = 600
        (await connect(endpoint)).close()
        assert len(server.requests) == 4

"""Brokers that log in at each other with tokens: OAUTHBEARER between them, and a record on both."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from confluent_kafka import Producer

from headrace.cli.main import command_line
from headrace.testing.process import BrokerProcess
from headrace.testing.process_cluster import wait_until
from tests.compat.confluent_admin import AdminClient
from tests.compat.issuer import AUDIENCE, CLIENT, ISSUER, SECRET, Issuer, IssuerServer

TIMEOUT_S = 60.0
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class TokenBroker(BrokerProcess):
    def __init__(self, broker_id: int, folder: Path, server: IssuerServer) -> None:
        (folder / str(broker_id)).mkdir()
        super().__init__(root=folder / str(broker_id))
        self.settings = folder / f"{broker_id}.properties"
        self.settings.write_text(
            f"node.id={broker_id}\n"
            f"listeners=SASL_PLAINTEXT://127.0.0.1:{self.port}\n"
            f"log.dirs={folder / 'data'}\n"
            "headrace.admin.port=0\n"
            "sasl.enabled.mechanisms=OAUTHBEARER\n"
            "sasl.mechanism.inter.broker.protocol=OAUTHBEARER\n"
            f"listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config={MODULE} required;\n"
            f"sasl.oauthbearer.jwks.endpoint.url={server.url('keys')}\n"
            f"sasl.oauthbearer.expected.issuer={ISSUER}\n"
            f"sasl.oauthbearer.expected.audience={AUDIENCE}\n"
            f"sasl.oauthbearer.token.endpoint.url={server.url('token')}\n"
            f"sasl.oauthbearer.client.credentials.client.id={CLIENT}\n"
            f"sasl.oauthbearer.client.credentials.client.secret={SECRET}\n"
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "super.users=User:alice\n"
        )

    def command(self) -> list[str]:
        return [*super().command()[:4], str(self.settings)]


def test_replication_with_tokens(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(closing(IssuerServer(Issuer(tmp_path))))
        brokers = [TokenBroker(number, tmp_path, server) for number in (1, 2)]
        for broker in brokers:
            stack.callback(broker.close)
            broker.launch()
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        client: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda config: (server.issuer.token(), 4e9),
        }
        path = tmp_path / "client.properties"
        (tmp_path / "token").write_text(server.issuer.token())
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.oauthbearer.token.endpoint.url=file://{tmp_path / 'token'}\n"
        )
        create = ["-b", bootstrap, "topic", "create", "orders", "-r", "2", "--client-config", str(path)]
        wait_until(lambda: CliRunner().invoke(command_line, create).exit_code == 0, "two brokers", TIMEOUT_S)
        producer = Producer({**client, "acks": "all"})
        errors: list[object] = []
        producer.produce("orders", b"to both", on_delivery=lambda error, message: errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        assert errors == [None]
        admin = AdminClient(client)

        def in_sync() -> int:
            return len(admin.list_topics("orders", timeout=TIMEOUT_S).topics["orders"].partitions[0].isrs)

        wait_until(lambda: in_sync() == 2, "both in sync", TIMEOUT_S)

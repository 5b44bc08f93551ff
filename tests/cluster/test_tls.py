"""Three brokers that talk to each other over SASL_SSL only: replication, controller calls, a change of leader."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from headrace.cli.main import command_line
from headrace.env.certificates import make_authority, make_certificate
from headrace.testing.process import BrokerProcess
from headrace.testing.process_cluster import wait_until
from tests.compat.confluent_admin import AdminClient

TIMEOUT_S = 60.0
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "of the brokers"


class SecuredBroker(BrokerProcess):
    def __init__(self, broker_id: int, folder: Path) -> None:
        (folder / str(broker_id)).mkdir()
        super().__init__(root=folder / str(broker_id))
        self.settings = folder / f"{broker_id}.properties"
        self.settings.write_text(
            f"node.id={broker_id}\n"
            f"listeners=SASL_SSL://127.0.0.1:{self.port}\n"
            f"log.dirs={folder / 'data'}\n"
            "headrace.admin.port=0\n"
            "ssl.keystore.type=PEM\n"
            f"ssl.keystore.location={folder / 'broker.pem'}\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={folder / 'ca.pem'}\n"
            # The brokers show each other certificates too; clients need none elsewhere, but here they do.
            "listener.name.sasl_ssl.ssl.client.auth=required\n"
            "sasl.enabled.mechanisms=SCRAM-SHA-512\n"
            f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={MODULE} required "
            f'username="brokers" password="{PASSWORD}";\n'
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "super.users=User:brokers\n"
        )

    def command(self) -> list[str]:
        return [*super().command()[:4], str(self.settings)]


class SecuredCluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = make_authority("cluster")
        (folder / "ca.pem").write_text(authority.pem)
        (folder / "broker.pem").write_text(make_certificate(authority, "broker", ("127.0.0.1",)).store)
        self.brokers = [SecuredBroker(broker_id, folder) for broker_id in (1, 2, 3)]
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers)
        (folder / "password").write_text(PASSWORD)
        (folder / "client.properties").write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.username=brokers\nsasl.password={PASSWORD}\n"
            f"ssl.ca.location={folder / 'ca.pem'}\n"
            f"ssl.certificate.location={folder / 'broker.pem'}\n"
        )
        words = ["user", "add", "brokers", "--password-file", str(folder / "password"), "--offline"]
        _must(CliRunner().invoke(command_line, [*words, str(self.brokers[0].settings)]))

    def run(self, *words: str) -> Result:
        login = ["--client-config", str(self.folder / "client.properties")]
        return CliRunner().invoke(command_line, ["-b", self.bootstrap, *words, *login])

    @property
    def client(self) -> dict[str, Any]:
        store = str(self.folder / "broker.pem")
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "brokers",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "ssl.certificate.location": store,
            "ssl.key.location": store,
            "log_level": 0,
        }


def _must(result: Result) -> None:
    assert result.exit_code == 0, result.output


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    made = SecuredCluster(tmp_path)
    with ExitStack() as stack:
        for broker in made.brokers:
            stack.callback(broker.close)
            broker.launch()
        for broker in made.brokers:
            wait_until(functools.partial(broker.is_ready, math.inf), "the start of a broker")
        yield made


def test_replication_and_a_change_of_leader(cluster: SecuredCluster) -> None:
    _must(cluster.run("topic", "create", "orders", "-p", "1", "-r", "3"))

    def write(value: bytes) -> None:
        producer = Producer({**cluster.client, "acks": "all", "enable.idempotence": True})
        told: list[object] = []
        producer.produce("orders", value, on_delivery=lambda error, message: told.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        assert told == [None]

    def partition() -> tuple[int, set[int]]:
        topic = AdminClient(cluster.client).list_topics("orders", timeout=TIMEOUT_S).topics["orders"]
        if 0 not in topic.partitions:  # a broker that has not heard of the topic yet
            return -1, set()
        return topic.partitions[0].leader, set(topic.partitions[0].isrs)

    leader = -1

    def all_in_sync() -> bool:
        nonlocal leader
        leader, in_sync = partition()
        return in_sync == {1, 2, 3}

    wait_until(all_in_sync, "all replicas in sync")
    write(b"before")
    cluster.brokers[leader - 1].kill()
    wait_until(lambda: partition()[0] not in (leader, -1), "another leader")
    write(b"after")
    read = cluster.run("topic", "consume", "orders", "-o", "start", "-n", "2", "--format", "json")
    _must(read)
    assert "before" in read.output
    assert "after" in read.output
    for broker in cluster.brokers:
        assert "Traceback" not in broker.log_text()

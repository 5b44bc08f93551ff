"""The source and the sink with TLS and SASL, by the options that Spark's own have."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compat.issuer import IssuerServer
from tests.compat.secured import MTLS, PASSWORDS, SCRAM_MODULE, TlsBroker
from tests.compat.test_oauth import FileBroker, OAuthBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.headrace_only


def test_write_over_sasl_ssl_and_read_with_a_certificate(spark: SparkSession, tmp_path: Path) -> None:
    broker = TlsBroker(tmp_path)
    broker.add_first_users()
    with broker:
        broker.set_up()
        trusted = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(tmp_path / "ca.pem")}
        login = f'{SCRAM_MODULE} required username="alice" password="{PASSWORDS["alice"]}";'
        writing = {
            **trusted,
            "kafka.bootstrap.servers": broker.address("SASL_SSL"),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": login,
            "topic": "orders",
        }
        rows = spark.range(1000).selectExpr("cast(id as string) key", "concat('order ', id) value")
        # Idempotent writing would need a right that alice does not have.
        rows.write.format("headrace").options(**writing).option("kafka.enable.idempotence", "false").mode(
            "append"
        ).save()
        reading = {
            **trusted,
            "kafka.bootstrap.servers": broker.address(MTLS),
            "kafka.security.protocol": "SSL",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": str(tmp_path / "alice.store.pem"),
            "subscribe": "orders",
        }
        read = spark.read.format("headrace").options(**reading).load()
        assert read.selectExpr("count(distinct value)").collect()[0][0] == 1000


def test_tokens_for_an_id_and_a_secret(spark: SparkSession, tmp_path: Path) -> None:
    """OAUTHBEARER: the driver and every task ask the issuer."""
    (tmp_path / "run").mkdir()
    process = FileBroker(root=tmp_path / "run")
    made = OAuthBroker(tmp_path, process.port)
    process.settings = tmp_path / "server.properties"
    with process, closing(IssuerServer(made.issuer)) as server:
        created = made.command("topic", "create", "orders", "-p", "2")
        assert created.exit_code == 0, created.output
        login = {f"kafka.{name}": value for name, value in made.credentials(server).items()}
        options = {**login, "kafka.bootstrap.servers": made.bootstrap}
        rows = spark.range(100).selectExpr("concat('order ', id) value")
        rows.write.format("headrace").options(**options, topic="orders").mode("append").save()
        read = spark.read.format("headrace").options(**options, subscribe="orders").load()
        assert read.selectExpr("count(distinct value)").collect()[0][0] == 100
        assert server.requests.count("/token") > 2

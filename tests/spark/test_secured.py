"""The source and the sink with TLS and SASL, by the options that Spark's own have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compat.secured import MTLS, PASSWORDS, SCRAM_MODULE, TlsBroker

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

"""The source, the sink and pipelines with TLS and SASL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import command_line
from headrace.cli.pipeline.screen import PipelineScreen
from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.running.launching import Launch, LaunchSettings
from tests.compat.issuer import IssuerServer
from tests.compat.secured import MTLS, PASSWORDS, SCRAM_MODULE, TlsBroker
from tests.compat.test_oauth import FileBroker, OAuthBroker
from tests.spark.pipeline_runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.headrace_only


PIPELINE = """\
name: secured
sources:
  orders: {topic: raw, format: json, schema: "id bigint, customer string"}
steps:
  - {name: ada, from: orders, filter: "customer = 'ada'"}
sinks:
  ada: {from: ada, topic: secured.ada, create: {partitions: 2}}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    broker = TlsBroker(tmp_path_factory.mktemp("secured"))
    broker.add_first_users()
    with broker:
        broker.set_up()
        yield broker


def values(broker: TlsBroker, topic: str) -> list[str]:
    read = broker.run("topic", "consume", topic, "-o", "beginning", "-e")
    assert read.exit_code == 0, read.output
    return sorted(read.stdout.splitlines())


def test_a_pipeline_with_all_its_commands(
    spark: SparkSession, broker: TlsBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--client-config` with a password, and `client:` in the file with a certificate: both hold everywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_STATE_DIR", str(tmp_path / "state"))

    def run(*words: str, login: bool = True) -> Result:
        done = broker.run(*words) if login else CliRunner().invoke(command_line, list(words))
        assert done.exit_code == 0, (done.output, done.exception)
        return done

    run("topic", "create", "raw", "-p", "2")
    for value in ('{"id": 1, "customer": "ada"}', '{"id": 2, "customer": "bob"}', '{"id": 3, "customer": "ada"}'):
        run("topic", "produce", "raw", value)
    run("pipeline", "init", "raw", "--output", "first.yml")
    assert "customer string" in (tmp_path / "first.yml").read_text()
    run("topic", "produce", "raw", '{"id')
    (tmp_path / "secured.yml").write_text(PIPELINE)
    assert "no problems" in run("pipeline", "check", "secured.yml").output
    assert "ada" in run("pipeline", "preview", "secured.yml").output
    run("pipeline", "reset", "secured.yml", "--to", "0", "--yes")

    folder = broker.folder
    client = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(folder / "admin.pem"),
        "ssl.key.location": str(folder / "admin.key"),
    }
    (tmp_path / "secured.yml").write_text(
        f"bootstrap: {broker.address(MTLS)}\nclient: {json.dumps(client)}\n{PIPELINE}"
    )
    assert "no problems" in run("pipeline", "check", "secured.yml", "--no-spark", login=False).output
    pipeline = load_pipeline("secured.yml")
    asked = Launch([pipeline], LaunchSettings(), PipelineScreen("table", quiet=True, drawn=False))
    assert asked._partitions_read(pipeline) == 2
    Runs(spark, broker.address(MTLS), tmp_path).once(pipeline)
    assert values(broker, "secured.ada") == ['{"id":1,"customer":"ada"}', '{"id":3,"customer":"ada"}']
    assert values(broker, "secured.dead-letter") == ['{"id']


def test_write_over_sasl_ssl_and_read_with_a_certificate(spark: SparkSession, broker: TlsBroker) -> None:
    trusted = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(broker.folder / "ca.pem")}
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
        "kafka.ssl.keystore.location": str(broker.folder / "alice.store.pem"),
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

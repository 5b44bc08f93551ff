"""Settings of a client reach every connection of a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client.login import ClientLogin
from headrace.spark.pipelines.connecting import client_settings, cluster_settings, connection_options
from headrace.spark.pipelines.definition import PipelineError
from headrace.spark.pipelines.loading.files import load_pipeline

CLIENT = """\
client:
  security.protocol: SASL_PLAINTEXT
  sasl.mechanism: SCRAM-SHA-512
  sasl.username: etl
  sasl.password: ${SECRET}
"""
PARTS = """\
sources:
  orders: {topic: orders, format: json, schema: "id string"}
  users: {table: users, format: json, schema: "name string", key: id}
  rates: {files: "rates/*.csv", table: true, schema: "a string"}
sinks:
  out: {from: orders, topic: out}
  kept: {from: orders, parquet: kept}
"""
EXPECTED = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "etl",
    "kafka.sasl.password": "s",
}


def write(folder: Path, text: str) -> str:
    (folder / "p.yml").write_text(text)
    return str(folder / "p.yml")


def test_every_topic_gets_the_settings_of_the_file(tmp_path: Path) -> None:
    pipeline = load_pipeline(write(tmp_path, CLIENT + PARTS), {"SECRET": "s"})
    assert [dict(end.options) for end in pipeline.ends] == [EXPECTED, EXPECTED, {}, EXPECTED, {}]
    assert connection_options(pipeline) == EXPECTED
    asked = cluster_settings(pipeline, "b:9092").security
    assert asked is not None
    assert isinstance(asked.login, ClientLogin)
    assert client_settings(pipeline).login is not None


def test_the_command_overrides_the_file_and_options_override_both(tmp_path: Path) -> None:
    own = PARTS.replace("topic: out}", 'topic: out, options: {kafka.security.protocol: "SSL"}}')
    given = {"security.protocol": "PLAINTEXT", "client.id": "me"}
    pipeline = load_pipeline(write(tmp_path, CLIENT + own), {"SECRET": "s"}, client=given)
    assert pipeline.sources[0].options == {"kafka.security.protocol": "PLAINTEXT"}
    assert pipeline.sinks[0].options == {"kafka.security.protocol": "SSL"}


def test_without_client_the_first_part_that_has_settings_says_how(tmp_path: Path) -> None:
    own = PARTS.replace(
        "key: id}", 'key: id, options: {kafka.security.protocol: "PLAINTEXT", failOnDataLoss: "false"}}'
    )
    pipeline = load_pipeline(write(tmp_path, own), {})
    assert connection_options(pipeline) == {"kafka.security.protocol": "PLAINTEXT"}
    assert pipeline.sinks[0].options == {}
    assert client_settings(pipeline).login is None


@pytest.mark.parametrize(
    ("client", "what"),
    [
        ("  security.protocl: SSL", "Did you mean security.protocol?"),
        ("  sasl.mechanism: PLAIN", "it has no effect without"),
        ("  {security.protocol: SSL, ssl.ca.location: nowhere.pem}", "nowhere.pem"),
    ],
)
def test_mistakes_are_told_at_their_line(tmp_path: Path, client: str, what: str) -> None:
    with pytest.raises(PipelineError) as told:
        load_pipeline(write(tmp_path, f"client:\n{client}\n{PARTS}"), {})
    (problem,) = told.value.problems
    assert problem.line == 2
    assert what in str(problem)

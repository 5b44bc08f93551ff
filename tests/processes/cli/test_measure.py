"""A plan measured on a real broker."""

from __future__ import annotations

import json

from click.testing import CliRunner
from confluent_kafka import Producer

from headrace.cli.main import command_line
from headrace.testing import Broker


def test_against_a_broker(headrace_broker: Broker) -> None:
    topic = headrace_broker.create_topic("planned", 2, {"retention.ms": "7200000"})
    producer = Producer({"bootstrap.servers": headrace_broker.bootstrap_servers})
    for number in range(200):
        producer.produce(topic, b"x" * 1000, partition=number % 2)
    assert producer.flush(60) == 0
    asked = ["plan", "-b", headrace_broker.bootstrap_servers, "--measure", "10ms"]
    quiet = CliRunner().invoke(command_line, asked)
    assert quiet.exit_code == 1
    assert "Nothing was written to the cluster" in quiet.output
    told = CliRunner().invoke(command_line, [*asked, "-t", "1MB/s", "--format", "json"])
    assert told.exit_code == 0, told.output
    result = json.loads(told.stdout)
    assert result["cluster"]["replication"] == 1
    assert result["cluster"]["retention_seconds"] == 7200
    assert result["cluster"]["stored_bytes"] >= 200_000
    assert any("over 2h with 1 replica " in reason["how"] for reason in result["broker_reasons"])
    people = CliRunner().invoke(command_line, [*asked, "-t", "1MB/s"])
    assert "The cluster has\n  1 broker: enough for 1.\n" in people.output

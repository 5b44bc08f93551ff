"""Kafka's own tool names and flags, with commands as its quick start has them; and commands about the cluster."""

from __future__ import annotations

import json
import re

import pytest

from headrace.testing.process import ServerProcess
from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.test_cli import Cli, cli, refused, run
from tests.conftest import StartBroker

__all__ = ["cli"]


def test_the_quick_start(bootstrap: str, cli: Cli) -> None:
    name = unique_name("quickstart-events")
    server = ("--bootstrap-server", bootstrap)
    assert cli("kafka-topics.sh", "--create", "--topic", name, *server) == f"Created topic {name}.\n"
    first, second = cli("kafka-topics.sh", "--describe", "--topic", name, *server).splitlines()
    assert re.match(rf"Topic: {name}\tTopicId: \S{{22}}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs:", first)
    assert re.match(rf"\tTopic: {name}\tPartition: 0\tLeader: \d+\tReplicas: \d+\tIsr: \d+\tElr: ", second)
    events = b"This is my first event\nThis is my second event\n"
    cli("kafka-console-producer.sh", "--topic", name, *server, stdin=events)
    read = run(
        bootstrap,
        "kafka-console-consumer.sh",
        "--topic",
        name,
        "--from-beginning",
        *server,
        "--timeout-ms",
        "1000",
    )
    assert (read.stdout, read.stderr) == (events, b"Processed a total of 2 messages\n")
    assert name in cli("kafka-topics", "--list", *server).splitlines()
    cli("kafka-topics", "--delete", "--topic", name, *server)


def test_console_properties(bootstrap: str, cli: Cli, topic: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    keys = ("--property", "parse.key=true", "--property", "key.separator=:")
    cli("kafka-console-producer", "--topic", topic, *server, *keys, "--compression-codec", stdin=b"k1:v1\nk2:v2\n")
    refused_line = run(bootstrap, "kafka-console-producer", "--topic", topic, *server, *keys, stdin=b"no key\n")
    assert refused_line.returncode == 1
    assert b"No key separator" in refused_line.stderr
    shown = [f"print.{part}=true" for part in ("key", "offset", "partition", "headers", "timestamp")]
    flags = [flag for one in shown for flag in ("--property", one)]
    where = ("--partition", "0", "--offset", "1", "--max-messages", "1")
    out = cli("kafka-console-consumer", "--topic", topic, *server, *where, *flags)
    assert re.fullmatch(r"CreateTime:\d+\tPartition:0\tOffset:1\tNO_HEADERS\tk2\tv2\n", out)


def test_topics_alter_and_offsets(bootstrap: str, cli: Cli, make_topic: MakeTopic) -> None:
    name = make_topic(1)
    server = ("--bootstrap-server", bootstrap)
    cli("topic", "produce", name, "a", "b", "c")
    cli("kafka-topics", "--alter", "--topic", name, "--partitions", "2", *server)
    assert cli("kafka-get-offsets", "--topic", name, *server) == f"{name}:0:3\n{name}:1:0\n"
    assert cli("kafka-get-offsets", "--topic-partitions", f"{name}:0", "--time", "-2", *server) == f"{name}:0:0\n"
    assert cli("kafka-get-offsets", "--topic", name, "--time", "4000000000000", *server) == ""
    near = f"Did you mean {name}?"
    refused(bootstrap, 4, near, "kafka-topics", "--describe", "--topic", name + "x", *server)
    assert cli("kafka-topics", "--describe", "--topic", "nothing-like-it", "--if-exists", *server) == ""


def test_configs(bootstrap: str, cli: Cli, topic: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    added = "retention.ms=1000,cleanup.policy=[compact,delete]"
    changed = cli("kafka-configs", *server, "--alter", *entity, "--add-config", added)
    assert changed == f"Completed updating config for topic {topic}.\n"
    shown = cli("kafka-configs", *server, "--describe", "--topic", topic).splitlines()
    assert shown[0] == f"Dynamic configs for topic {topic} are:"
    assert [line.split()[0] for line in shown[1:]] == ["cleanup.policy=compact,delete", "retention.ms=1000"]
    cli("kafka-configs", *server, "--alter", *entity, "--delete-config", "retention.ms,cleanup.policy")
    assert len(cli("kafka-configs", *server, "--describe", "--topic", topic).splitlines()) == 1
    refused(
        bootstrap, 4, "There is no topic", "kafka-configs", *server, "--describe", "--topic", "nothing-like-it"
    )


def test_settings_of_groups(bootstrap: str, cli: Cli, topic: str) -> None:
    group = f"group-of-{topic}"
    server = ("--bootstrap-server", bootstrap)
    entity = ("--entity-type", "groups", "--entity-name", group)
    setting = "consumer.session.timeout.ms"
    changed = cli("kafka-configs", *server, "--alter", *entity, "--add-config", f"{setting}=50000")
    assert changed == f"Completed updating config for group {group}.\n"
    shown = cli("kafka-configs", *server, "--describe", "--group", group).splitlines()
    assert shown[0] == f"Dynamic configs for group {group} are:"
    assert [line.split()[0] for line in shown[1:]] == [f"{setting}=50000"]
    assert shown[0] in cli("kafka-configs", *server, "--describe", "--entity-type", "groups")
    (row,) = json.loads(cli("group", "config", group, "--format", "json"))
    assert (row["name"], row["value"], row["source"]) == (setting, "50000", "group")
    cli("group", "config", group, "--set", f"{setting}=55000")
    (row,) = json.loads(cli("group", "config", group, setting, "--format", "json"))
    assert row["value"] == "55000"
    cli("group", "config", group, "--delete", setting)
    assert json.loads(cli("group", "config", group, "--format", "json")) == []
    refused(bootstrap, 4, "no setting nope", "group", "config", group, "nope")


def test_cluster_commands(bootstrap: str, cli: Cli, topic: str) -> None:
    info = json.loads(cli("cluster", "info", "--format", "json"))
    assert [f"{one['host']}:{one['port']}" for one in info["brokers"]] == [bootstrap]
    broker = str(info["brokers"][0]["id"])
    cli("topic", "produce", topic, "x" * 1000)
    (directory,) = json.loads(cli("cluster", "logdirs", "--format", "json"))
    sizes = {one["topic"]: one["size_bytes"] for one in directory["partition_list"]}
    assert sizes[topic] > 1000
    assert directory["total_bytes"] > directory["free_bytes"] > 0
    health = json.loads(cli("cluster", "health", "--format", "json"))
    assert not [one for one in health if "partition" in one["what"] and one["state"] != "ok"]
    check = json.loads(cli("cluster", "check", "--format", "json"))
    assert any("the cluster cannot survive the loss of one" in one["what"] for one in check), "R-OPS-9"
    (row,) = json.loads(cli("cluster", "config", "num.partitions", "--broker", broker, "--format", "json"))
    assert row["value"] == "1"
    doctor = json.loads(cli("doctor", "--format", "json"))
    assert any(f"Broker {broker} can be reached" in one["what"] for one in doctor)
    refused(bootstrap, 4, "no setting nope", "cluster", "config", "nope")
    refused(bootstrap, 4, "no broker 99", "cluster", "config", "--broker", "99")


def test_dynamic_broker_settings(own_broker: StartBroker) -> None:
    server: ServerProcess = own_broker()
    done = run(server.bootstrap, "cluster", "config", "--set", "log.retention.ms=123456")
    assert done.returncode == 0, done.stderr
    shown = run(server.bootstrap, "cluster", "config", "log.retention.ms", "--format", "json")
    assert [(one["value"], one["source"]) for one in json.loads(shown.stdout)] == [("123456", "all brokers")]
    assert run(server.bootstrap, "cluster", "config", "--delete", "log.retention.ms").returncode == 0
    assert run(server.bootstrap, "cluster", "config", "--set", "log.dirs=x").returncode == 1


def test_perf(cli: Cli, make_topic: MakeTopic) -> None:
    name = make_topic(2)
    written = json.loads(cli("perf", "produce", name, "-n", "2000", "-s", "100", "--format", "json"))
    assert written["records"] == 2000
    assert 0 < written["latency"]["p50_ms"] <= written["latency"]["max_ms"]
    assert (
        json.loads(cli("perf", "produce", name, "-n", "500", "--acks", "0", "--format", "json"))["records"] == 500
    )
    read = json.loads(cli("perf", "consume", name, "--format", "json"))
    assert read["records"] == 2500, "also what was sent without an answer has arrived"
    assert json.loads(cli("perf", "e2e", name, "-n", "5", "--format", "json"))["latency"]["p99_9_ms"] > 0


@pytest.mark.headrace_only
def test_a_doctor_who_was_told_where_the_cluster_is() -> None:
    examined = run("127.0.0.1:1", "doctor", "--timeout", "5s")
    assert examined.returncode == 3, examined.stdout
    assert b"error    Cannot reach a broker at 127.0.0.1:1" in examined.stdout


@pytest.mark.headrace_only
def test_an_advertised_listener_that_nobody_reaches(own_broker: StartBroker) -> None:
    server = own_broker({"advertised.listeners": "PLAINTEXT://no-such-host.invalid:9092"})
    refused(server.bootstrap, 3, "advertised.listeners", "topic", "create", "t")
    examined = run(server.bootstrap, "doctor", "--format", "json")
    assert examined.returncode == 1
    assert b"no-such-host.invalid" in examined.stdout
    assert b"advertised.listeners=PLAINTEXT://127.0.0.1:9092" in examined.stdout


def test_dump_log_of_its_own_files(own_broker: StartBroker, broker_kind: str) -> None:
    server = own_broker()
    run(server.bootstrap, "topic", "create", "t")
    run(server.bootstrap, "topic", "produce", "t", "-k", "k", "one", "two")
    assert server.terminate() in (0, 143)
    (segment,) = server.data_dir.rglob("t-0/*.log")
    files = [str(path) for path in sorted(segment.parent.iterdir()) if path.suffix != ".txnindex"]
    dumped = run("unused:1", "debug", "dump-log", "--records", "--format", "jsonl", *files)
    assert dumped.returncode == 0, dumped.stdout
    by_kind = {one["kind"]: one for one in map(json.loads, dumped.stdout.splitlines())}
    assert [one["value"] for one in by_kind["segment"]["records"]] == ["one", "two"]
    assert by_kind["producer snapshot"]["entries"][0]["last_sequence"] == 1
    printed = run("unused:1", "kafka-dump-log", "--files", str(segment), "--print-data-log").stdout.decode()
    assert "baseOffset: 0 lastOffset: 1 count: 2" in printed
    assert "key: k payload: two" in printed

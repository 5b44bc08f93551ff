"""The command line against a real broker, ours or Apache Kafka: topics, records, offsets (R-OPS-1)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.raw_client import CODECS, stored_batches
from tests.compat.clients import ALL_CODECS, Confluent, Record
from tests.compat.conftest import MakeTopic, unique_name

TIMEOUT_S = 60
Cli = Callable[..., str]


def launch(bootstrap: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "HEADRACE_BOOTSTRAP_SERVERS": bootstrap}
    return subprocess.Popen([sys.executable, "-m", "headrace", *arguments], env=environment, **options)


def run(bootstrap: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "HEADRACE_BOOTSTRAP_SERVERS": bootstrap}
    command = [sys.executable, "-m", "headrace", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False, env=environment
    )


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    """Runs a command that must succeed; its standard output."""

    def call(*arguments: str, stdin: bytes = b"") -> str:
        done = run(bootstrap, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return call


def refused(bootstrap: str, code: int, part: str, *arguments: str) -> None:
    done = run(bootstrap, *arguments)
    assert done.returncode == code, done.stderr.decode()
    assert part in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


def test_a_topics_life(bootstrap: str, cli: Cli) -> None:
    name = unique_name()
    cli("topic", "create", name, "-p", "2", "-c", "retention.ms=3600000")
    (listed,) = json.loads(cli("topic", "list", name, "--format", "json"))
    assert (listed["name"], listed["partitions"], listed["replication_factor"]) == (name, 2, 1)
    (shown,) = json.loads(cli("topic", "describe", name, "--format", "json"))
    assert shown["configs"]["retention.ms"] == "3600000"
    assert [one["partition"] for one in shown["partition_list"]] == [0, 1]
    cli("topic", "alter", name, "--set", "retention.ms=1000", "--set", "cleanup.policy=compact")
    cli("topic", "alter", name, "--delete", "cleanup.policy")
    (shown,) = json.loads(cli("topic", "describe", name, "--format", "json"))
    assert shown["configs"]["retention.ms"] == "1000"
    assert "cleanup.policy" not in shown["configs"]
    grown = run(bootstrap, "topic", "add-partitions", name, "--count", "3", "--yes")
    assert grown.returncode == 0
    assert b"same key may now go to a different partition" in grown.stderr, "R-TOP-3"
    assert len(json.loads(cli("topic", "describe", name, "--format", "json"))[0]["partition_list"]) == 5
    cli("topic", "delete", name, "--yes")
    assert cli("topic", "list", name) == ""


def test_a_table_for_people(cli: Cli, make_topic: MakeTopic) -> None:
    name = make_topic(3)
    heading, row = cli("topic", "list", name).splitlines()
    assert heading.split() == ["NAME", "PARTITIONS", "REPLICATION-FACTOR"]
    assert row.split() == [name, "3", "1"]
    assert "LOG-END-OFFSET" in cli("topic", "describe", name)


def test_topic_mistakes(bootstrap: str, topic: str) -> None:
    refused(bootstrap, 4, f"Did you mean {topic}?", "topic", "describe", topic + "x")
    refused(bootstrap, 4, "There is no topic", "topic", "consume", "nothing-like-it")
    refused(bootstrap, 4, "has no partition 7", "topic", "consume", topic, "-p", "7")
    refused(bootstrap, 4, "has no partition 7", "topic", "produce", topic, "-p", "7", "v")
    refused(bootstrap, 1, "TOPIC_ALREADY_EXISTS", "topic", "create", topic)
    refused(bootstrap, 1, "INVALID_TOPIC_EXCEPTION", "topic", "create", "a/b")
    refused(bootstrap, 1, "INVALID_REPLICATION_FACTOR", "topic", "create", unique_name(), "-r", "9")
    refused(bootstrap, 1, "retention.ms", "topic", "alter", topic, "-s", "retention.ms=soon")
    refused(bootstrap, 1, "INVALID_PARTITIONS", "topic", "add-partitions", topic, "-t", "1", "-y")
    refused(bootstrap, 1, "Offset 99 does not exist", "topic", "consume", topic, "-o", "99")
    refused(bootstrap, 2, "add --yes", "topic", "delete", topic)
    partly = run(bootstrap, "topic", "create", unique_name(), topic)
    assert partly.returncode == 6, partly.stderr
    assert run(bootstrap, "topic", "create", topic, "--if-not-exists").returncode == 0
    assert run(bootstrap, "topic", "delete", "nothing-like-it", "--if-exists", "--yes").returncode == 0


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_produce_with_codec(bootstrap: str, cli: Cli, topic: str, codec: str) -> None:
    lines = b"".join(b"a line that compresses well %d\n" % number for number in range(500))
    cli("topic", "produce", topic, "-z", codec, stdin=lines)
    assert {batch.codec for batch in stored_batches(bootstrap, topic)} == {CODECS[codec]}
    assert cli("topic", "consume", topic, "-e").encode() == lines
    assert len(Confluent().read(bootstrap, topic, 0, 500)) == 500


def test_keys_headers_nulls_and_partitions_as_other_clients_have_them(
    bootstrap: str, cli: Cli, make_topic: MakeTopic
) -> None:
    name = make_topic(3)
    lines = b"".join(b"key%d:value%d\n" % (number, number) for number in range(30)) + b"gone:\n"
    cli("topic", "produce", name, "-K", ":", "-Z", "-H", "origin=cli", "-H", "flag", stdin=lines)
    found = [json.loads(line) for line in cli("topic", "consume", name, "-e", "--format", "json").splitlines()]
    assert len(found) == 31
    by_key = {one["key"]: one for one in found}
    assert by_key["gone"]["value"] is None
    assert by_key["key7"]["value"] == "value7"
    assert by_key["key7"]["headers"] == [{"key": "origin", "value": "cli"}, {"key": "flag", "value": None}]
    for partition in range(3):
        read = cli("topic", "consume", name, "-p", str(partition), "-e", "-f", r"%p\n").split()
        assert set(read) <= {str(partition)}


def test_values_given_as_arguments(cli: Cli, topic: str) -> None:
    (row,) = json.loads(cli("topic", "produce", topic, "-k", "k", "one", "two", "--report", "json"))
    assert row == {"topic": topic, "partition": 0, "first_offset": 0, "records": 2}
    cli("topic", "produce", topic, "--acks", "0", "three")
    assert cli("topic", "consume", topic, "-e", "-f", "%k=%s ") == "k=one k=two =three "


def test_without_acks_the_end_waits_until_all_is_taken(
    bootstrap: str, cli: Cli, topic: str, tmp_path: Path
) -> None:
    """R-PRO-1: acks=0 gives up the answer, not what is still in our own buffers."""
    (tmp_path / "lines").write_bytes(b"".join(b"%01000d\n" % number for number in range(20_000)))
    with (tmp_path / "lines").open("rb") as lines:
        assert launch(bootstrap, "topic", "produce", topic, "--acks", "0", stdin=lines).wait(TIMEOUT_S) == 0
    (row,) = json.loads(cli("topic", "offsets", topic, "--format", "json"))
    assert row["log_end_offset"] == 20_000


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("start:end", range(10)),
        ("3:", range(3, 10)),
        ("3:5", range(3, 5)),
        ("-2:", range(8, 10)),
        ("+7:", range(7, 10)),
        (":4", range(4)),
        ("@1700000004:", range(4, 10)),
        ("@1700000004000:1700000006000", range(4, 6)),
        ("@2023-11-14T22:13:25Z:2023-11-14T22:13:27Z", range(5, 7)),
        ("@1800000000:", range(0)),
    ],
)
def test_from_anywhere_to_anywhere(bootstrap: str, cli: Cli, topic: str, where: str, wanted: range) -> None:
    records = [Record(b"%d" % number, timestamp_ms=1_700_000_000_000 + 1000 * number) for number in range(10)]
    Confluent().produce(bootstrap, topic, records)
    assert cli("topic", "consume", topic, "-o", where).split() == [str(number) for number in wanted]


def test_stop_after_so_many(cli: Cli, topic: str) -> None:
    cli("topic", "produce", topic, stdin=b"".join(b"%d\n" % number for number in range(1000)))
    assert cli("topic", "consume", topic, "-n", "3").split() == ["0", "1", "2"]
    assert cli("topic", "consume", topic, "-o", "-5", "-n", "2").split() == ["995", "996"]


def test_offsets_and_trim(cli: Cli, topic: str) -> None:
    cli("topic", "produce", topic, stdin=b"1\n2\n3\n4\n")
    (row,) = json.loads(cli("topic", "offsets", topic, "--format", "json"))
    assert (row["log_start_offset"], row["log_end_offset"]) == (0, 4)
    assert row["latest_timestamp_ms"] > 1_600_000_000_000
    (row,) = json.loads(cli("topic", "trim", topic, "--before", "3", "--yes", "--format", "json"))
    assert (row["deleted"], row["log_start_offset"]) == (3, 3)
    assert cli("topic", "consume", topic, "-o", "start:").split() == ["4"]
    assert cli("topic", "consume", topic, "-o", "0:").split() == ["4"], "what is gone is said on stderr"


def test_consume_follows_until_it_is_interrupted(bootstrap: str, cli: Cli, topic: str) -> None:
    cli("topic", "produce", topic, "before")
    reader = launch(bootstrap, "topic", "consume", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"before\n"
    cli("topic", "produce", topic, "after")
    assert reader.stdout.readline() == b"after\n"
    reader.send_signal(signal.SIGINT)
    _, stderr = reader.communicate(timeout=TIMEOUT_S)
    assert (reader.returncode, stderr) == (130, b"")


def test_a_reader_that_has_enough_ends_it_quietly(bootstrap: str, cli: Cli, topic: str) -> None:
    cli("topic", "produce", topic, stdin=b"".join(b"line %d\n" % number for number in range(100_000)))
    reader = launch(bootstrap, "topic", "consume", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"line 0\n"
    reader.stdout.close()
    assert reader.stderr is not None
    assert reader.stderr.read() == b""
    assert reader.wait(TIMEOUT_S) == 0


def test_a_reader_that_goes_while_nothing_comes_ends_it_too(bootstrap: str, cli: Cli, topic: str) -> None:
    cli("topic", "produce", topic, "one", "two")
    reader = launch(bootstrap, "topic", "consume", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"one\n"
    reader.stdout.close()
    assert reader.wait(TIMEOUT_S) == 0


def test_sigterm_ends_a_command_that_nobody_reads_from(bootstrap: str, cli: Cli, topic: str) -> None:
    cli("topic", "produce", topic, stdin=b"".join(b"line %d\n" % number for number in range(100_000)))
    reader = launch(bootstrap, "topic", "consume", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"line 0\n"  # the pipe is full of the others
    reader.send_signal(signal.SIGTERM)
    assert reader.wait(TIMEOUT_S) == 143
    assert reader.communicate()[1] == b""


def test_sigterm_in_a_group_commits_and_leaves(bootstrap: str, cli: Cli, topic: str) -> None:
    cli("topic", "produce", topic, "one", "two")
    group = unique_name("g")
    reader = launch(bootstrap, "topic", "consume", topic, "-g", group, stdout=subprocess.PIPE)
    assert reader.stdout is not None
    assert [reader.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
    reader.send_signal(signal.SIGTERM)
    assert reader.communicate(timeout=TIMEOUT_S)[0] == b""
    assert reader.returncode == 143
    (described,) = json.loads(cli("group", "describe", group, "--format", "json"))
    assert described["members"] == [], "it has said that it leaves"
    assert [one["current_offset"] for one in described["positions"]] == [2]


def test_a_copied_topic_has_its_nulls(bootstrap: str, cli: Cli, make_topic: MakeTopic) -> None:
    """The recipe of docs/migration.md."""
    one, other = make_topic(1), make_topic(1)
    cli("topic", "produce", one, "without a key")
    cli("topic", "produce", one, "-K", "=", stdin=b"=empty key\nk=v\nempty value=\n")
    cli("topic", "produce", one, "-k", "deleted", "-Z", "")
    text = cli("topic", "consume", one, "-e", "-f", r"%k\t%s\n", "--null-marker", "<null>")
    cli("topic", "produce", other, "-K", r"\t", "--null-marker", "<null>", stdin=text.encode())
    rows = [json.loads(row) for row in cli("topic", "consume", other, "-e", "--format", "jsonl").splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [
        (None, "without a key"),
        ("", "empty key"),
        ("k", "v"),
        ("empty value", ""),
        ("deleted", None),
    ]


def test_produce_sends_a_line_when_it_comes(bootstrap: str, cli: Cli, topic: str) -> None:
    """`tail -f log | headrace topic produce`: no waiting for a full buffer."""
    writer = launch(bootstrap, "topic", "produce", topic, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert writer.stdin is not None
    writer.stdin.write(b"first\n")
    writer.stdin.flush()
    assert cli("topic", "consume", topic, "-n", "1") == "first\n"
    writer.send_signal(signal.SIGINT)
    assert writer.wait(TIMEOUT_S) == 130, "Ctrl-C ends it while it waits for a line"


@pytest.mark.headrace_only
def test_reading_goes_on_after_a_restart(own_broker: Callable[..., Any]) -> None:
    server = own_broker()
    assert run(server.bootstrap, "topic", "create", "t").returncode == 0
    assert run(server.bootstrap, "topic", "produce", "t", "before").returncode == 0
    reader = launch(server.bootstrap, "topic", "consume", "t", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"before\n"
    server.restart()
    time.sleep(0.1)
    assert run(server.bootstrap, "topic", "produce", "t", "after").returncode == 0
    assert reader.stdout.readline() == b"after\n"
    reader.kill()
    reader.communicate()

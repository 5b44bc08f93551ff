"""The commands about groups against a real broker, ours or Apache Kafka (R-OPS-8): both protocols, lag, moves."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
import pytest

from tests.compat.clients import TIMEOUT_S, Confluent, Record
from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.test_cli import launch, refused, run

AGE_S = 100.0
Cli = Callable[..., str]


@pytest.fixture
def cli(group_bootstrap: str) -> Cli:
    """Runs a command that must succeed; its standard output."""

    def call(*arguments: str) -> str:
        done = run(group_bootstrap, *arguments)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return call


@pytest.fixture
def topic(group_bootstrap: str, group_topic: MakeTopic) -> str:
    """Two partitions with ten records each, which are a hundred seconds old."""
    name = group_topic(2)
    began_ms = int((time.time() - AGE_S) * 1000)
    records = [Record(b"%d" % one, partition=one % 2, timestamp_ms=began_ms + one) for one in range(20)]
    Confluent().produce(group_bootstrap, name, records)
    return name


def consumer(bootstrap: str, group: str, protocol: str) -> ck.Consumer:
    return ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def commit(bootstrap: str, group: str, topic: str, *offsets: int) -> None:
    """As an application without a group's protocol does, which makes the group."""
    reader = consumer(bootstrap, group, "classic")
    wanted = [ck.TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    reader.commit(offsets=wanted, asynchronous=False)
    reader.close()


@contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[ck.Consumer]:
    """Holds every partition of the topic."""
    reader = consumer(bootstrap, group, protocol)
    reader.subscribe([topic])
    deadline = time.monotonic() + TIMEOUT_S
    while len(reader.assignment()) < 2:
        assert time.monotonic() < deadline
        reader.poll(0.1)
    try:
        yield reader
    finally:
        reader.close()


def described(cli: Cli, group: str) -> dict[str, Any]:
    (document,) = json.loads(cli("group", "describe", group, "--format", "json"))
    assert isinstance(document, dict)
    return document


def positions(cli: Cli, group: str) -> list[int | None]:
    return [one["current_offset"] for one in described(cli, group)["positions"]]


def test_lag_in_records_and_seconds(group_bootstrap: str, cli: Cli, topic: str) -> None:
    group = unique_name("g")
    commit(group_bootstrap, group, topic, 4, 10)
    document = described(cli, group)
    assert (document["state"], document["type"], document["members"]) == ("Empty", "classic", [])
    behind, level = document["positions"]
    assert (behind["current_offset"], behind["log_end_offset"], behind["lag"]) == (4, 10, 6)
    assert AGE_S <= behind["lag_seconds"] < AGE_S + TIMEOUT_S
    assert (level["lag"], level["lag_seconds"]) == (0, 0)
    assert (document["lag"], document["lag_seconds"]) == (6, behind["lag_seconds"])
    (listed,) = json.loads(cli("group", "list", group, "--lag", "--format", "json"))
    assert (listed["group"], listed["lag"], listed["members"], listed["topics"]) == (group, 6, 0, [topic])


def test_kafkas_column_words(group_bootstrap: str, cli: Cli, topic: str) -> None:
    group = unique_name("g")
    commit(group_bootstrap, group, topic, 4, 10)
    heading, first, _ = cli("group", "describe", group).splitlines()
    assert heading.split() == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "LAG-TIME",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]
    assert first.split()[:6] == [group, topic, "0", "4", "10", "6"]
    lines = cli("kafka-consumer-groups", "--describe", "--group", group).splitlines()
    assert lines[0] == ""
    assert lines[1].split() == [word for word in heading.split() if word != "LAG-TIME"]
    assert lines[2].split() == [group, topic, "0", "4", "10", "6", "-", "-", "-"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_both_protocols(group_bootstrap: str, cli: Cli, topic: str, protocol: str) -> None:
    group = unique_name("g")
    with member(group_bootstrap, group, topic, protocol):
        document = described(cli, group)
        assert (document["type"], document["state"]) == (protocol, "Stable")
        (one,) = document["members"]
        assert (one["client_id"], one["partitions"]) == ("reader", 2)
        assert one["assignment"] == [{"topic": topic, "partitions": [0, 1]}]
        assert {row["client_id"] for row in document["positions"]} == {"reader"}
        assert "127.0.0.1" in one["host"]
        (row,) = json.loads(cli("group", "describe", group, "--state", "--format", "json"))
        assert (row["state"], row["members"], row["type"]) == ("Stable", 1, protocol)
        assert row["assignment_strategy"]
        assert f"{topic}:0,1" in cli(
            "kafka-consumer-groups", "--describe", "--group", group, "--members", "--verbose"
        )

        refused(group_bootstrap, 1, "has 1 member (Stable)", "group", "seek", group, "--to", "latest", "--yes")
        refused(group_bootstrap, 1, "NON_EMPTY_GROUP", "group", "delete", group, "--yes")
        reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute")
        refused(group_bootstrap, 1, "is inactive, but", "kafka-consumer-groups", *reset)
        assert positions(cli, group) == [None, None], "nothing was moved"


def test_filters(group_bootstrap: str, cli: Cli, topic: str) -> None:
    empty, stable = unique_name("g"), unique_name("g")
    commit(group_bootstrap, empty, topic, 1)
    with member(group_bootstrap, stable, topic, "consumer"):
        assert {empty, stable} <= set(cli("kafka-consumer-groups", "--list").split())
        found = cli("group", "list", "--state", "empty").split()
        assert empty in found
        assert stable not in found
        found = cli("group", "list", "--type", "consumer").split()
        assert stable in found
        assert empty not in found
        assert len(json.loads(cli("group", "list", f"{stable}|{empty}", "--format", "json"))) == 2


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("earliest", [0, 0]),
        ("latest", [10, 10]),
        ("3", [3, 3]),
        ("+2", [6, 10]),
        ("-3", [1, 7]),
        ("@-1h", [0, 0]),
        ("@now", [10, 10]),
    ],
)
def test_seek(group_bootstrap: str, cli: Cli, topic: str, where: str, expected: list[int]) -> None:
    group = unique_name("g")
    commit(group_bootstrap, group, topic, 4, 10)
    rows = json.loads(cli("group", "seek", group, "--to", where, "--dry-run", "--format", "json"))
    assert [row["new_offset"] for row in rows] == expected
    assert [row["current_offset"] for row in rows] == [4, 10]
    assert positions(cli, group) == [4, 10], "a preview changes nothing"
    refused(group_bootstrap, 2, "add --yes", "group", "seek", group, "--to", where, "--format", "json")
    cli("group", "seek", group, "--to", where, "--yes")
    assert positions(cli, group) == expected
    reader = consumer(group_bootstrap, group, "classic")
    held = reader.committed([ck.TopicPartition(topic, number) for number in range(2)], timeout=TIMEOUT_S)
    assert [one.offset for one in held] == expected, "what an application goes on from"
    reader.close()


def test_seek_in_some_partitions_and_of_a_new_group(group_bootstrap: str, cli: Cli, topic: str) -> None:
    group = unique_name("g")
    cli("group", "seek", group, "--to", "5", "-t", f"{topic}:1", "--yes")
    assert [one["partition"] for one in described(cli, group)["positions"]] == [1]
    done = run(group_bootstrap, "group", "seek", group, "--to", "99", "-t", topic, "--yes")
    assert done.returncode == 0
    assert b"99 becomes 10" in done.stderr
    assert positions(cli, group) == [10, 10]
    refused(group_bootstrap, 4, "no partition 7", "group", "seek", group, "--to", "1", "-t", f"{topic}:7", "--yes")
    refused(
        group_bootstrap,
        4,
        f"Did you mean {topic}?",
        "group",
        "seek",
        group,
        "--to",
        "1",
        "-t",
        topic + "x",
        "--yes",
    )
    refused(group_bootstrap, 4, f"Did you mean {group}?", "group", "describe", group + "x")
    refused(group_bootstrap, 4, "There is no group", "group", "seek", group + "x", "--to", "1", "--yes")


def test_deleting(group_bootstrap: str, cli: Cli, topic: str, group_topic: MakeTopic) -> None:
    other, group = group_topic(2), unique_name("g")
    for name in (topic, other):
        commit(group_bootstrap, group, name, 0, 0)
    cli("group", "delete", group, "-t", f"{other}:1", "--yes")
    assert len(positions(cli, group)) == 3
    rows = cli("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", other).splitlines()
    assert rows[2].split() == [other, "0", "Successful"]
    assert len(positions(cli, group)) == 2
    done = run(group_bootstrap, "group", "delete", group, "no-such-group", "--yes")
    assert done.returncode == 6, "partly done"
    assert b"GROUP_ID_NOT_FOUND" in done.stderr
    refused(group_bootstrap, 4, "There is no group", "group", "delete", group, "--yes")


def test_kafkas_reset(group_bootstrap: str, cli: Cli, topic: str, tmp_path: Any) -> None:
    group = unique_name("g")
    commit(group_bootstrap, group, topic, 4, 10)

    def reset(*arguments: str) -> list[list[str]]:
        lines = cli("kafka-consumer-groups", "--reset-offsets", "--group", group, *arguments).splitlines()
        return [line.split() for line in lines]

    assert reset("--all-topics", "--to-earliest")[1:] == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        [group, topic, "0", "0"],
        [group, topic, "1", "0"],
    ]
    assert positions(cli, group) == [4, 10], "not without --execute"
    reset("--topic", f"{topic}:1", "--shift-by", "-4", "--execute")
    assert positions(cli, group) == [4, 6]
    reset("--topic", topic, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert positions(cli, group) == [0, 0]
    reset("--topic", topic, "--by-duration", "PT10S", "--execute")
    assert positions(cli, group) == [10, 10], "the records are older"
    (plan := tmp_path / "plan.csv").write_text(f"{topic},0,7\n")
    assert reset("--from-file", str(plan), "--export", "--execute") == [[f"{topic},0,7"]]
    assert positions(cli, group) == [7, 10]
    deleted = cli("kafka-consumer-groups", "--delete", "--group", group)
    assert deleted == f"Deletion of requested consumer groups ('{group}') was successful.\n"


def test_watching(group_bootstrap: str, cli: Cli, topic: str) -> None:
    group = unique_name("g")
    commit(group_bootstrap, group, topic, 4, 10)
    lines = cli("group", "watch", group, "-n", "2", "-i", "200ms", "--format", "jsonl").splitlines()
    first, second = (json.loads(line) for line in lines)
    assert (first["lag"], first["consumed_per_second"]) == (6, None)
    assert (second["lag"], second["consumed_per_second"], second["produced_per_second"]) == (6, 0, 0)
    table = cli("group", "watch", group, "-n", "1", "-p").splitlines()
    assert table[0].split()[:5] == ["GROUP", "STATE", "#MEMBERS", "TOPIC", "PARTITION"]
    assert len(table) == 4


def test_reading_in_a_group(group_bootstrap: str, cli: Cli, topic: str) -> None:
    """R-CON-1: what one run printed, the next does not."""
    group = unique_name("g")
    first = cli("topic", "consume", topic, "-g", group, "-n", "7").split()
    second = cli("kafka-console-consumer", "--topic", topic, "--group", group, "--max-messages", "5").split()
    rest = cli("kafka-console-consumer", "--topic", topic, "--group", group, "--max-messages", "8").split()
    assert sorted(map(int, first + second + rest)) == list(range(20))
    assert positions(cli, group) == [10, 10]
    assert described(cli, group)["members"] == [], "it has said that it leaves"
    fresh = run(
        group_bootstrap, "kafka-console-consumer", "--topic", topic, "--group", group + "x", "--timeout-ms", "500"
    )
    assert fresh.stdout == b"", "a new group begins at the end unless --from-beginning"
    refused(group_bootstrap, 2, "--group continues", "topic", "consume", topic, "-g", group, "-o", "5")


def test_two_readers_share_and_hand_over(group_bootstrap: str, cli: Cli, topic: str) -> None:
    """R-CON-2"""
    group = unique_name("g")
    readers = [
        launch(group_bootstrap, "topic", "consume", topic, "-g", group, stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        shared = [[{"topic": topic, "partitions": [0]}], [{"topic": topic, "partitions": [1]}]]
        deadline = time.monotonic() + TIMEOUT_S
        while sorted(held := assignments(cli, group), key=str) != shared:
            assert time.monotonic() < deadline, held
        readers[0].send_signal(signal.SIGINT)
        readers[0].wait(TIMEOUT_S)
        while assignments(cli, group) != [[{"topic": topic, "partitions": [0, 1]}]]:
            assert time.monotonic() < deadline
        readers[1].send_signal(signal.SIGINT)
        printed = [number for reader in readers for number in reader.communicate(timeout=TIMEOUT_S)[0].split()]
        assert sorted(map(int, printed)) == list(range(20)), "each record once: all left cleanly"
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()


def assignments(cli: Cli, group: str) -> list[Any]:
    listed = json.loads(cli("group", "list", group, "--format", "json"))
    return [one["assignment"] for one in described(cli, group)["members"]] if listed else []

"""Records in and out of the command line against a real broker: JSON both ways, copies, tables, ends (R-OPS-1)."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.compat.clients import Confluent, Record, Stored
from tests.compat.confluent_admin import AdminClient
from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.test_cli import TIMEOUT_S, Cli, cli, launch, refused, run

__all__ = ["cli"]  # the fixture

RECORDS = [
    Record(b"text", key=b"k", partition=0, timestamp_ms=1_700_000_000_000, headers=(("a", b"1"), ("a", b""))),
    Record(None, key=b"gone", partition=2, timestamp_ms=1_700_000_000_001),
    Record(b"\xff\x00", key=b"\xfe", partition=1, timestamp_ms=1_700_000_000_002, headers=(("bin", b"\xff"),)),
    Record(b"", key=b"", partition=2, timestamp_ms=1_700_000_000_003),
    Record("Zürich\n".encode(), partition=1, timestamp_ms=1_700_000_000_004),
]


def contents(bootstrap: str, topic: str) -> list[list[Stored]]:
    """What another client reads, by partition."""
    counts = [1, 2, 2]
    return [Confluent().read(bootstrap, topic, partition, counts[partition]) for partition in range(3)]


def test_json_lines_are_read_back_as_they_were(bootstrap: str, cli: Cli, make_topic: MakeTopic) -> None:
    source, target = make_topic(3), make_topic(3)
    Confluent().produce(bootstrap, source, RECORDS)
    lines = cli("topic", "consume", source, "-e", "--format", "jsonl")
    assert len(lines.splitlines()) == len(RECORDS)
    cli("topic", "produce", target, "--format", "jsonl", stdin=lines.encode())
    assert contents(bootstrap, target) == contents(bootstrap, source)


def test_json_that_does_not_fit(bootstrap: str, cli: Cli, topic: str) -> None:
    lines = b'{"value": "one"}\n{"value": "two", "partition": 9}\n{"value": "three"}\n'
    done = run(bootstrap, "topic", "produce", topic, "--format", "jsonl", stdin=lines)
    assert done.returncode == 1
    assert f"Line 2: {topic} has no partition 9".encode() in done.stderr
    assert b"Written before it: 1 record." in done.stderr
    assert cli("topic", "consume", topic, "-e") == "one\n"
    cli("topic", "produce", topic, "--format", "jsonl", "--repartition", stdin=lines)
    assert len(cli("topic", "consume", topic, "-e").splitlines()) == 4


def test_a_copy_keeps_everything(bootstrap: str, cli: Cli, make_topic: MakeTopic, admin: AdminClient) -> None:
    source, copied, elsewhere = make_topic(3, {"retention.ms": "7200000"}), unique_name(), unique_name()
    Confluent().produce(bootstrap, source, RECORDS)
    try:
        done = run(bootstrap, "topic", "copy", source, copied)
        assert done.returncode == 0, done.stderr
        assert f"Created topic {copied} with 3 partitions.".encode() in done.stderr
        assert f"Copied 5 records from {source} to {copied}.".encode() in done.stderr
        assert contents(bootstrap, copied) == contents(bootstrap, source)
        (shown,) = json.loads(cli("topic", "describe", copied, "--format", "json"))
        assert shown["configs"]["retention.ms"] == "7200000"
        cli("topic", "copy", source, elsewhere, "--to", bootstrap, "-o", "1")
        assert len(cli("topic", "consume", elsewhere, "-e", "--format", "jsonl").splitlines()) == 2
    finally:
        for future in admin.delete_topics([copied, elsewhere]).values():
            future.exception(30)


def test_copies_that_cannot_be(bootstrap: str, cli: Cli, make_topic: MakeTopic) -> None:
    wide, narrow = make_topic(3), make_topic(1)
    Confluent().produce(bootstrap, wide, RECORDS)
    refused(bootstrap, 2, "cannot be copied to itself", "topic", "copy", wide, wide)
    refused(bootstrap, 2, "only 1 partition", "topic", "copy", wide, narrow)
    refused(bootstrap, 4, "There is no topic", "topic", "copy", "nothing-like-it", narrow)
    refused(bootstrap, 2, "not of the form host:port", "topic", "copy", wide, narrow, "--to", "host:port")
    refused(bootstrap, 3, "given with --to", "topic", "copy", wide, narrow, "--to", "127.0.0.1:1")
    cli("topic", "copy", wide, narrow, "--repartition")
    assert len(Confluent().read(bootstrap, narrow, 0, 5)) == 5


def test_a_copy_that_is_interrupted_says_how_far_it_came(bootstrap: str, cli: Cli, make_topic: MakeTopic) -> None:
    source, copied = make_topic(3), make_topic(3)
    Confluent().produce(bootstrap, source, RECORDS)
    copier = launch(bootstrap, "topic", "copy", source, copied, "--follow", stderr=subprocess.PIPE)
    cli("topic", "consume", copied, "-n", str(len(RECORDS)), "--format", "jsonl")
    copier.send_signal(signal.SIGINT)
    _, stderr = copier.communicate(timeout=TIMEOUT_S)
    assert copier.returncode == 130
    assert b"Interrupted after copying" in stderr


def test_a_table(bootstrap: str, cli: Cli, topic: str) -> None:
    Confluent().produce(bootstrap, topic, [Record(b"v" * 200, key=b"k"), Record(None, key=b"gone")])
    heading, row, tombstone = cli("topic", "consume", topic, "-e", "--format", "table").splitlines()
    assert heading.split() == ["PART", "OFFSET", "TIMESTAMP", "KEY", "VALUE"]
    assert len(row) == 80
    assert row.endswith("v…")
    assert tombstone.endswith("gone              (tombstone)")


def test_a_group_reads_to_the_end(bootstrap: str, cli: Cli, make_topic: MakeTopic) -> None:
    topic, group = make_topic(3), unique_name("g")
    Confluent().produce(bootstrap, topic, RECORDS)
    read = cli("topic", "consume", topic, "-g", group, "-e", "--format", "jsonl").splitlines()
    assert len(read) == len(RECORDS)
    assert cli("topic", "consume", topic, "-g", group, "-e") == "", "it was committed"
    refused(bootstrap, 2, "leave out -p", "topic", "consume", topic, "-g", group, "-p", "0")
    refused(bootstrap, 2, "can only be start or end", "topic", "consume", topic, "-g", group, "-o", "5")


@pytest.mark.parametrize("arguments", [("-o", "end", "-n", "1"), ("-g", "group")])
def test_a_timeout_that_was_asked_for_ends_it(bootstrap: str, topic: str, arguments: tuple[str, ...]) -> None:
    done = run(bootstrap, "topic", "consume", topic, *arguments, "--timeout", "2s")
    assert done.returncode == 124, done.stderr
    assert b"No record arrived within 2 s." in done.stderr


def test_mistakes_with_keys(bootstrap: str, cli: Cli, topic: str, tmp_path: Path) -> None:
    refused(bootstrap, 2, "use one of them", "topic", "produce", topic, "-k", "a", "-K", ":", "v")
    refused(bootstrap, 2, "is for text", "topic", "produce", topic, "--format", "jsonl", "-k", "a", "{}")
    done = run(bootstrap, "topic", "produce", topic, "-K", ":", stdin=b"a:1\nb\nc:3\n")
    assert done.returncode == 1
    assert b"Line 2: No key separator ':' found in the line 'b'." in done.stderr
    assert cli("topic", "consume", topic, "-e", "-f", "%k=%s ") == "a=1 "

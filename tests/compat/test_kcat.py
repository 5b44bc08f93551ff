"""kcat, the tool in everybody's hands: Debian's build uses librdkafka 2.0, older than the Python clients here."""

from __future__ import annotations

import json
import subprocess

import pytest

from headrace.testing.raw_client import CODECS, stored_batches
from tests.compat.clients import ALL_CODECS, CLIENTS, Confluent, Record
from tests.compat.conftest import MakeTopic

TIMEOUT_S = 90


def kcat(bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
    command = ["kcat", "-b", bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_list(bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic(3)
    listing = json.loads(kcat(bootstrap, "-L", "-J", "-t", name))
    (found,) = listing["topics"]
    assert found["topic"] == name
    assert [one["partition"] for one in found["partitions"]] == [0, 1, 2]
    assert [one["name"] for one in listing["brokers"]] == [bootstrap]
    text = kcat(bootstrap, "-L").decode()
    assert f'topic "{name}" with 3 partitions' in text


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_produce_with_codec(bootstrap: str, topic: str, codec: str) -> None:
    """R-LOG-3: the stored batch has the codec that was asked for, also by this old library."""
    lines = b"".join(b"a line that compresses well %d\n" % number * 3 for number in range(50))
    kcat(bootstrap, "-P", "-t", topic, "-z", codec, "-X", "linger.ms=100", stdin=lines)
    stored = stored_batches(bootstrap, topic)
    assert {batch.codec for batch in stored} == {CODECS[codec]}
    assert sum(batch.record_count for batch in stored) == 150
    out = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
    assert out == lines


def test_keys_and_headers(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K", ":", "-H", "origin=kcat", stdin=b"one:1\ntwo:2\n")
    for reader in CLIENTS:
        read = reader.read(bootstrap, topic, 0, 2)
        assert [(one.key, one.value) for one in read] == [(b"one", b"1"), (b"two", b"2")]
        assert read[0].headers == (("origin", b"kcat"),)


def test_null_values(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K", ":", "-Z", stdin=b"tombstone:\n")
    (one,) = Confluent().read(bootstrap, topic, 0, 1)
    assert (one.key, one.value) == (b"tombstone", None)


def test_consume_with_a_format(bootstrap: str, topic: str) -> None:
    records = [Record(b"v%d" % n, key=b"k", timestamp_ms=1_700_000_000_000 + n) for n in range(3)]
    Confluent().produce(bootstrap, topic, records)
    arguments = ("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
    out = kcat(bootstrap, *arguments, "-f", "%t/%p/%o/%k/%s/%T\n").decode()
    assert out.splitlines() == [f"{topic}/0/{n}/k/v{n}/{1_700_000_000_000 + n}" for n in range(3)]
    lines = kcat(bootstrap, *arguments, "-J").decode().splitlines()
    assert [json.loads(line)["payload"] for line in lines] == ["v0", "v1", "v2"]


@pytest.mark.parametrize(("offset", "wanted"), [("3", 3), ("-2", 8), ("s@1700000000005", 5)])
def test_consume_from(bootstrap: str, topic: str, offset: str, wanted: int) -> None:
    """By number, from the end, by time."""
    records = [Record(b"%d" % n, timestamp_ms=1_700_000_000_000 + n) for n in range(10)]
    Confluent().produce(bootstrap, topic, records)
    out = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", offset, "-e", "-q")
    assert out.split() == [b"%d" % number for number in range(wanted, 10)]


def test_query_offsets(bootstrap: str, topic: str) -> None:
    records = [Record(b"v", timestamp_ms=1_700_000_000_000 + n) for n in range(10)]
    Confluent().produce(bootstrap, topic, records)
    asked = {"-2": 0, "-1": 10, "1700000000004": 4}
    for spec, wanted in asked.items():
        out = kcat(bootstrap, "-Q", "-t", f"{topic}:0:{spec}").decode()
        assert out.strip() == f"{topic} [0] offset {wanted}"


def test_idempotent(bootstrap: str, topic: str) -> None:
    """R-PRO-3 with the old library."""
    lines = b"".join(b"%d\n" % number for number in range(1_000))
    kcat(bootstrap, "-P", "-t", topic, "-X", "enable.idempotence=true", "-z", "lz4", stdin=lines)
    stored = stored_batches(bootstrap, topic)
    assert all(batch.producer_id >= 0 for batch in stored)
    assert sum(batch.record_count for batch in stored) == 1_000


def test_acks_zero(bootstrap: str, topic: str) -> None:
    """R-PRO-1."""
    kcat(bootstrap, "-P", "-t", topic, "-X", "acks=0", stdin=b"1\n2\n3\n")
    assert [one.value for one in Confluent().read(bootstrap, topic, 0, 3)] == [b"1", b"2", b"3"]

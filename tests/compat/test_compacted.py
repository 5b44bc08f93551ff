"""R-LOG-5 as clients see it: none stumbles over the gaps, emptied batches and tombstones of a compacted topic."""

from __future__ import annotations

import re
import time

import pytest

from tests.compat.clients import CLIENTS, Client, Confluent, ProduceFailed, Record, Settings
from tests.compat.confluent_admin import AdminClient, NewTopic
from tests.compat.test_java_tools import DUMP_LOG, java
from tests.conftest import StartBroker

CLEANS_AT_ONCE = {"log.cleaner.backoff.ms": "100"}
TABLE = {"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01"}
KEYS = 10
ROUNDS = 5
DEADLINE_S = 90.0
DUMPED = (".log", ".index", ".timeindex")


def create_table(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("table", 1, 1, config=TABLE)])["table"].result(60)


def write_rounds(client: Client, bootstrap: str, topic: str, codec: str) -> None:
    """Every round is a segment of its own, and its producer is another one: the last batch of each stays."""
    for number in range(ROUNDS):
        records = [Record(b"round %d" % number, b"key %d" % key) for key in range(KEYS - 1)]
        records.append(Record(None if number == ROUNDS - 2 else b"x", b"gone"))
        client.produce(bootstrap, topic, records, Settings(codec=codec, idempotent=True, linger_ms=50))
        time.sleep(0.4)


def wait_for_compaction(bootstrap: str, topic: str, first_offset: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (found := Confluent().read(bootstrap, topic, 0, 1)[0].offset) != first_offset:
        assert time.monotonic() < deadline, f"the first record is still at {found}"
        time.sleep(0.2)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_client_reads_a_compacted_topic(own_broker: StartBroker, codec: str) -> None:
    bootstrap = own_broker(CLEANS_AT_ONCE).bootstrap
    create_table(bootstrap)
    write_rounds(Confluent(), bootstrap, "table", codec)
    # The last round is in the active segment; of those before, only the last is left.
    kept = (ROUNDS - 2) * KEYS
    wait_for_compaction(bootstrap, "table", kept)
    for client in CLIENTS:
        found = client.read(bootstrap, "table", 0, 2 * KEYS)
        assert [record.offset for record in found] == list(range(kept, kept + 2 * KEYS)), client.name
        assert [record.value for record in found[: KEYS - 1]] == [b"round %d" % (ROUNDS - 2)] * (KEYS - 1)
        assert (found[KEYS - 1].key, found[KEYS - 1].value) == (b"gone", None)


@pytest.mark.java
@pytest.mark.headrace_only
def test_apache_kafka_reads_the_compacted_files(own_broker: StartBroker) -> None:
    broker = own_broker(CLEANS_AT_ONCE)
    create_table(broker.bootstrap)
    write_rounds(Confluent(), broker.bootstrap, "table", "lz4")
    wait_for_compaction(broker.bootstrap, "table", (ROUNDS - 2) * KEYS)
    broker.terminate()
    files = sorted(str(path) for path in broker.data_dir.glob("broker-*/table-0/*") if path.suffix in DUMPED)
    shown = java(DUMP_LOG, "--deep-iteration", "--files", ",".join(files))
    assert "count: 0 " in shown, "an emptied batch"
    assert "deleteHorizonMs: OptionalLong[" in shown
    assert shown.count("isvalid: true") >= ROUNDS
    assert not re.search(r"isvalid: false|mismatch|Exception|Found timestamp", shown), shown


def test_a_record_without_a_key_is_refused(own_broker: StartBroker) -> None:
    bootstrap = own_broker(CLEANS_AT_ONCE).bootstrap
    create_table(bootstrap)
    with pytest.raises(ProduceFailed) as caught:
        Confluent().produce(bootstrap, "table", [Record(b"v")])
    assert caught.value.code == 87
    Confluent().produce(bootstrap, "table", [Record(b"v", b"k")])

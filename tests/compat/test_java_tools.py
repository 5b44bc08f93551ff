"""Apache Kafka's own command-line tools, and with them the Java client: the newest versions of every API.

They need Java and the jars that `scripts/fetch_kafka.py` brings, and a Java process per call takes its time: they
run with `--with-java`, as in `make conformance`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from headrace.env.real import real_env
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.batch import TRANSACTIONAL
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.records.markers import EndMarker
from headrace.storage.loading import create_log
from headrace.storage.log_config import LogConfig
from headrace.storage.resources import StorageResources
from headrace.testing.apache_kafka import cache_dir
from headrace.testing.raw_client import CODECS, stored_batches
from tests.compat.clients import ALL_CODECS, Confluent, Record, Settings
from tests.compat.conftest import MakeTopic, unique_name
from tests.conftest import StartBroker

LIBRARIES = cache_dir() / "libs"
TIMEOUT_S = 300

pytestmark = pytest.mark.java

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
ACLS = "org.apache.kafka.tools.AclCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"


def run_java(main_class: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
    command = ["java", *options, "-cp", f"{LIBRARIES}/*", main_class, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def java(main_class: str, *arguments: str, stdin: str = "") -> str:
    """Runs a tool and answers what it printed; it must succeed."""
    done = run_java(main_class, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ERROR" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stdout


def refused_java(main_class: str, *arguments: str) -> str:
    """Runs a tool that must fail, and answers all that it printed."""
    done = run_java(main_class, *arguments)
    assert done.returncode != 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_topics(bootstrap: str) -> None:
    name = unique_name("java")
    server = ("--bootstrap-server", bootstrap)
    create = ("--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=55000")
    assert f"Created topic {name}" in java(TOPICS, *server, *create)
    described = java(TOPICS, *server, "--describe", "--topic", name)
    assert "PartitionCount: 3" in described
    assert "retention.ms=55000" in described
    assert re.search(r"TopicId: [\w-]{22}", described)
    java(TOPICS, *server, "--alter", "--topic", name, "--partitions", "5")
    assert name in java(TOPICS, *server, "--list").split()
    assert "PartitionCount: 5" in java(TOPICS, *server, "--describe", "--topic", name)
    java(TOPICS, *server, "--delete", "--topic", name)


def test_configs(bootstrap: str, topic: str) -> None:
    target = ("--bootstrap-server", bootstrap, "--entity-type", "topics", "--entity-name", topic)
    java(CONFIGS, *target, "--alter", "--add-config", "max.message.bytes=2000000,cleanup.policy=[compact,delete]")
    described = java(CONFIGS, *target, "--describe")
    assert "max.message.bytes=2000000" in described
    assert "cleanup.policy=compact,delete" in described
    java(CONFIGS, *target, "--alter", "--delete-config", "max.message.bytes")
    assert "max.message.bytes" not in java(CONFIGS, *target, "--describe")


def test_quotas(bootstrap: str) -> None:
    """Of users, client ids, both and addresses, with names and defaults (KIP-546)."""
    server = ("--bootstrap-server", bootstrap)
    alice = ("--entity-type", "users", "--entity-name", "alice")
    entities = {
        alice: ("producer_byte_rate=1000000", "user-principal 'alice'"),
        (*alice, "--entity-type", "clients", "--entity-default"): (
            "request_percentage=50",
            "the default client-id",
        ),
        ("--entity-type", "ips", "--entity-name", "127.0.0.9"): ("connection_creation_rate=5", "127.0.0.9"),
    }
    for entity, (config, shown) in entities.items():
        java(CONFIGS, *server, "--alter", *entity, "--add-config", config)
        described = java(CONFIGS, *server, "--describe", *entity)
        assert config in described
        assert shown in described
        java(CONFIGS, *server, "--alter", *entity, "--delete-config", config.partition("=")[0])
        assert config not in java(CONFIGS, *server, "--describe", *entity)


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_console_producer_and_consumer(bootstrap: str, topic: str, codec: str) -> None:
    """R-LOG-3 with the Java client; idempotence is its default."""
    lines = [f"line {number} that compresses well, well, well" for number in range(200)]
    java(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec),
        stdin="\n".join(lines) + "\n",
    )
    stored = stored_batches(bootstrap, topic)
    assert {batch.codec for batch in stored} == {CODECS[codec]}
    assert stored[0].producer_id >= 0
    read = java(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0"),
        *("--offset", "earliest", "--max-messages", "200", "--timeout-ms", "20000"),
    )
    assert read.splitlines() == lines


def test_keys_go_to_the_same_partition_as_ours(bootstrap: str, make_topic: MakeTopic) -> None:
    """R-TOP-2: the Java client beside librdkafka, on the same keys."""
    name = make_topic(7)
    keys = [f"key-{number}" for number in range(40)]
    java(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", bootstrap, "--topic", name),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        stdin="".join(f"{key}:java\n" for key in keys),
    )
    placed = Confluent().produce(bootstrap, name, [Record(b"ours", key=key.encode()) for key in keys])
    for key, (partition, offset) in zip(keys, placed, strict=True):
        read = Confluent().read(bootstrap, name, partition, offset + 1)
        assert (key.encode(), b"java") in [(one.key, one.value) for one in read]


def test_offsets_and_delete_records(bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    """R-LOG-4."""
    name = make_topic(2)
    Confluent().produce(bootstrap, name, [Record(b"%d" % n, partition=1) for n in range(10)])
    request = tmp_path / "delete.json"
    request.write_text(f'{{"version":1,"partitions":[{{"topic":"{name}","partition":1,"offset":4}}]}}')
    server = ("--bootstrap-server", bootstrap)
    java(DELETE_RECORDS, *server, "--offset-json-file", str(request))
    for time, wanted in (("earliest", [0, 4]), ("latest", [0, 10])):
        out = java(GET_OFFSETS, *server, "--topic", name, "--time", time)
        assert out.split() == [f"{name}:{partition}:{offset}" for partition, offset in enumerate(wanted)]
    assert (
        java(GET_OFFSETS, *server, "--topic", name, "--time", "max-timestamp").split()[-1].startswith(f"{name}:1:")
    )


def test_log_dirs(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, [Record(b"x" * 500)])
    out = java(LOG_DIRS, "--bootstrap-server", bootstrap, "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in out
    assert '"error":null' in out


def test_api_versions(bootstrap: str) -> None:
    """Every API that the tool lists is known to it: no version outside of what that Kafka has."""
    out = java(API_VERSIONS, "--bootstrap-server", bootstrap)
    assert bootstrap in out
    assert re.search(r"Produce\(0\): (0|3) to 1[0-9] \[usable: 1[0-9]\]", out)
    assert re.search(r"Fetch\(1\): 4 to 1[0-9] \[usable: 1[0-9]\]", out)
    assert "UNKNOWN" not in out


def test_cluster_id(bootstrap: str) -> None:
    assert re.search(r"Cluster ID: [\w-]{22}", java(CLUSTER, "cluster-id", "--bootstrap-server", bootstrap))


def test_elections_and_reassignments(bootstrap: str, topic: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    one = ("--topic", topic, "--partition", "0")
    elected = java(ELECT, *server, "--election-type", "preferred", *one)
    assert f"Valid replica already elected for partitions {topic}-0" in elected
    java(ELECT, *server, "--election-type", "unclean", "--all-topic-partitions")
    assert "No partition reassignments found" in java(REASSIGN, *server, "--list")


def test_acls_without_an_authorizer(bootstrap: str) -> None:
    assert "SecurityDisabledException" in run_java(ACLS, "--bootstrap-server", bootstrap, "--list").stdout


def test_sasl_on_a_plaintext_listener(bootstrap: str, tmp_path: Path) -> None:
    """Said at once, and not a time-out."""
    settings = tmp_path / "sasl.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="u" password="p";\n'
    )
    said = refused_java(TOPICS, "--bootstrap-server", bootstrap, "--list", "--command-config", str(settings))
    assert "IllegalSaslStateException" in said


def test_transactions_and_features(bootstrap: str, topic: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    assert "TransactionalId" in java(TRANSACTIONS, *server, "list")
    assert "ProducerId" in java(TRANSACTIONS, *server, "describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(r"metadata.version\s.*FinalizedVersionLevel: 4\.3-IV0", java(FEATURES, *server, "describe"))


@pytest.mark.headrace_only
def test_what_is_not_there_yet_is_refused_with_a_reason(bootstrap: str, topic: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    upgrade = refused_java(FEATURES, *server, "upgrade", "--feature", "transaction.version=1")
    assert "fixed by this release" in upgrade


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_producer_performance(bootstrap: str, make_topic: MakeTopic, acks: str) -> None:
    """R-PRO-1: twenty thousand records at full speed; all of them are there."""
    name = make_topic(3)
    load = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    properties = ["--command-property", f"bootstrap.servers={bootstrap}", f"acks={acks}"]
    if acks != "all":
        properties.append("enable.idempotence=false")
    assert "20000 records sent" in java(PERFORMANCE, "--topic", name, *load, *properties)
    out = java(GET_OFFSETS, "--bootstrap-server", bootstrap, "--topic", name, "--time", "latest")
    assert sum(int(line.rsplit(":", 1)[1]) for line in out.split()) == 20_000


def test_verifiable_producer(bootstrap: str, topic: str) -> None:
    out = java(
        VERIFIABLE_PRODUCER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", "500", "--acks", "-1"),
    )
    assert out.count('"name":"producer_send_success"') == 500
    assert len(Confluent().read(bootstrap, topic, 0, 500)) == 500


def test_dump_log_reads_our_segments(own_broker: StartBroker) -> None:
    """R-LOG-1: Kafka's own reader of segment files and indexes finds nothing wrong with the files on disk."""
    server = own_broker({"log.index.interval.bytes": "500", "auto.create.topics.enable": "true"})
    for number in range(10):
        records = [Record(b"x" * 100, key=b"k", partition=0) for _ in range(200)]
        Confluent().produce(
            server.bootstrap, "dumped", records, Settings(ALL_CODECS[number % 5], batch_bytes=2_000)
        )
    assert server.terminate() in (0, 143)
    (directory,) = server.data_dir.glob("**/dumped-0")
    files = sorted(str(path) for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    assert len(files) == 3
    out = java(DUMP_LOG, "--files", ",".join(files), "--deep-iteration")
    assert "isvalid: true" in out
    assert "isvalid: false" not in out
    assert "Found" not in out, "mismatches between an index and its log"
    assert out.count("| offset:") == 2_000
    checked = java(DUMP_LOG, "--files", ",".join(files[:1]), "--index-sanity-check")
    assert "passed sanity check" in checked


def test_dump_log_reads_our_transactions(tmp_path: Path) -> None:
    """Kafka's own reader on a log with transactions: markers, what was aborted, what is open in a snapshot."""
    directory = tmp_path / "t-0"
    resources = StorageResources.create(real_env())
    log = create_log(str(directory), TopicPartition("t", 0), TopicId(bytes(16)), LogConfig(), resources)

    def write(producer_id: int, sequence: int) -> None:
        guard = log.start_verification(producer_id, 0, sequence, bumps_epochs=False)
        stamp = ProducerStamp(producer_id, 0, sequence)
        records = [NewRecord(b"v", b"k", timestamp=log._resources.env.clock.wall_ms())] * 2
        log.append_as_leader(build_batch(records, attributes=TRANSACTIONAL, producer=stamp), 0, guard)

    write(1000, 0)
    write(2000, 0)
    log.append_marker(EndMarker(1000, 1, commit=False, coordinator_epoch=7, transaction_version=2), 0)
    log.append_marker(EndMarker(2000, 0, commit=True, coordinator_epoch=8), 0)
    write(2000, 2)
    log.close()
    files = sorted(str(path) for path in directory.iterdir() if path.suffix in (".log", ".txnindex", ".snapshot"))
    out = java(DUMP_LOG, "--files", ",".join(files), "--deep-iteration")
    assert "isvalid: false" not in out
    assert "endTxnMarker: ABORT coordinatorEpoch: 7" in out
    assert "endTxnMarker: COMMIT coordinatorEpoch: 8" in out
    assert "version: 0 producerId: 1000 firstOffset: 0 lastOffset: 4 lastStableOffset: 2" in out
    snapshot = {line.split()[1]: line for line in out.splitlines() if "currentTxnFirstOffset" in line}
    assert "producerEpoch: 1 coordinatorEpoch: 7 currentTxnFirstOffset: OptionalLong.empty" in snapshot["1000"]
    assert "producerEpoch: 0 coordinatorEpoch: 8 currentTxnFirstOffset: OptionalLong[6]" in snapshot["2000"]

"""R-OPS-8, R-TOP-3, R-TOP-5: the admin calls of confluent-kafka (librdkafka)."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka as ck
import pytest

from tests.compat.clients import Confluent, Record, Settings
from tests.compat.confluent_admin import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    offset_spec,
)
from tests.compat.conftest import MakeTopic, unique_name

TIMEOUT_S = 60.0
START_MS = 1_700_000_000_000


def only(futures: Mapping[Any, Any]) -> Any:
    """The result of the one future in a map."""
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def refusal(futures: Mapping[Any, Any]) -> int:
    """The error code with which the one future in a map fails."""
    (future,) = futures.values()
    with pytest.raises(ck.KafkaException) as failed:
        future.result(TIMEOUT_S)
    error: ck.KafkaError = failed.value.args[0]
    return error.code()


def eventually(check: Callable[[], bool]) -> None:
    """Kafka's controller answers before every broker has heard."""
    deadline = time.monotonic() + TIMEOUT_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def configs_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    return found


def test_create_describe_delete(admin: AdminClient) -> None:
    """R-TOP-5."""
    name = unique_name()
    configs = {"retention.ms": "123456", "segment.bytes": "2097152"}
    only(admin.create_topics([NewTopic(name, 3, 1, config=configs)]))
    eventually(lambda: len(admin.list_topics(name).topics[name].partitions) == 3)
    described = only(admin.describe_topics(ck.TopicCollection([name])))
    assert described.name == name
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert len(partition.replicas) == len(partition.isr) == 1
        assert partition.leader.id == partition.replicas[0].id
    found = configs_of(admin, name)
    assert (found["retention.ms"].value, found["segment.bytes"].value) == ("123456", "2097152")
    source: Any = found["retention.ms"].source
    assert source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["cleanup.policy"].is_default
    only(admin.delete_topics([name]))
    eventually(lambda: name not in admin.list_topics().topics)


def test_defaults_for_partitions_and_replicas(admin: AdminClient) -> None:
    """-1 means num.partitions and default.replication.factor."""
    name = unique_name()
    only(admin.create_topics([NewTopic(name, -1, -1)]))
    eventually(lambda: len(admin.list_topics(name).topics[name].partitions) == 1)
    only(admin.delete_topics([name]))


def test_manual_assignment(admin: AdminClient) -> None:
    broker = next(iter(admin.list_topics().brokers))
    name = unique_name()
    only(admin.create_topics([NewTopic(name, 2, replica_assignment=[[broker], [broker]])]))
    eventually(lambda: len(admin.list_topics(name).topics[name].partitions) == 2)
    only(admin.delete_topics([name]))
    bad = NewTopic(unique_name(), 1, replica_assignment=[[broker + 77]])
    assert refusal(admin.create_topics([bad])) == ck.KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_validate_only_creates_nothing(admin: AdminClient) -> None:
    name = unique_name()
    only(admin.create_topics([NewTopic(name, 3, 1)], validate_only=True))
    time.sleep(0.2)
    assert name not in admin.list_topics().topics
    bad = NewTopic(name, 3, 9)
    assert refusal(admin.create_topics([bad], validate_only=True)) == ck.KafkaError.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("..", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic(".", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("a/b", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("sp ace", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("ü", 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), ck.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("zero", 0, 1), ck.KafkaError.INVALID_PARTITIONS),
        (NewTopic("replicas", 1, 99), ck.KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("config", 1, 1, config={"no.such.config": "1"}), ck.KafkaError.INVALID_CONFIG),
        (NewTopic("config", 1, 1, config={"retention.ms": "soon"}), ck.KafkaError.INVALID_CONFIG),
        (NewTopic("config", 1, 1, config={"segment.bytes": "1"}), ck.KafkaError.INVALID_CONFIG),
        (NewTopic("config", 1, 1, config={"cleanup.policy": "burn"}), ck.KafkaError.INVALID_CONFIG),
        (NewTopic("config", 1, 1, config={"compression.type": "rar"}), ck.KafkaError.INVALID_CONFIG),
    ],
)
def test_refused_topics(admin: AdminClient, topic: NewTopic, code: int) -> None:
    assert refusal(admin.create_topics([topic])) == code
    assert topic.topic not in admin.list_topics().topics


def test_existing_and_missing_topics(admin: AdminClient, topic: str) -> None:
    assert refusal(admin.create_topics([NewTopic(topic, 1, 1)])) == ck.KafkaError.TOPIC_ALREADY_EXISTS
    missing = unique_name("missing")
    assert refusal(admin.delete_topics([missing])) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    unknown = admin.describe_topics(ck.TopicCollection([missing]))
    assert refusal(unknown) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert admin.list_topics(missing).topics[missing].error is not None


def test_names_that_collide(admin: AdminClient) -> None:
    """`a.b` and `a_b` would have the same metric names: refused."""
    name = unique_name("col.lide")
    only(admin.create_topics([NewTopic(name, 1, 1)]))
    twin = NewTopic(name.replace(".", "_"), 1, 1)
    assert refusal(admin.create_topics([twin])) == ck.KafkaError.TOPIC_EXCEPTION
    only(admin.delete_topics([name]))


def test_one_bad_topic_does_not_stop_the_others(admin: AdminClient) -> None:
    good, bad = unique_name(), "not/good"
    futures = admin.create_topics([NewTopic(good, 1, 1), NewTopic(bad, 1, 1)])
    futures[good].result(TIMEOUT_S)
    with pytest.raises(ck.KafkaException):
        futures[bad].result(TIMEOUT_S)
    only(admin.delete_topics([good]))


def test_create_partitions(bootstrap: str, admin: AdminClient, make_topic: MakeTopic) -> None:
    """R-TOP-3: data stays where it is; new partitions begin empty; never fewer."""
    name = make_topic(2)
    Confluent().produce(bootstrap, name, [Record(b"old", partition=1)])
    only(admin.create_partitions([NewPartitions(name, 5)], validate_only=True))
    assert len(admin.list_topics(name).topics[name].partitions) == 2
    only(admin.create_partitions([NewPartitions(name, 5)]))
    eventually(lambda: len(admin.list_topics(name).topics[name].partitions) == 5)
    Confluent().produce(bootstrap, name, [Record(b"new", partition=4)])
    assert Confluent().read(bootstrap, name, 1, 1)[0].value == b"old"
    assert Confluent().read(bootstrap, name, 4, 1)[0].value == b"new"
    for count in (5, 3):
        assert refusal(admin.create_partitions([NewPartitions(name, count)])) == ck.KafkaError.INVALID_PARTITIONS
    missing = NewPartitions(unique_name("missing"), 3)
    assert refusal(admin.create_partitions([missing])) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describe_topic_configs(admin: AdminClient, topic: str) -> None:
    """Kafka's names and defaults."""
    found = configs_of(admin, topic)
    wanted = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "retention.ms": "604800000",
        "retention.bytes": "-1",
        "segment.bytes": "1073741824",
        "segment.ms": "604800000",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "flush.messages": "9223372036854775807",
        "index.interval.bytes": "4096",
        "segment.index.bytes": "10485760",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "unclean.leader.election.enable": "false",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": "9223372036854775807",
    }
    assert {name: found[name].value for name in wanted} == wanted
    assert not any(entry.is_sensitive for entry in found.values())


def test_describe_broker_configs(admin: AdminClient) -> None:
    broker = str(next(iter(admin.list_topics().brokers)))
    found = only(admin.describe_configs([ConfigResource(ResourceType.BROKER, broker)]))
    assert found["auto.create.topics.enable"].value == "false"
    assert found["num.partitions"].value == "1"
    assert found["message.max.bytes"].value == "1048588"
    assert found["log.retention.hours"].value == "168"
    missing = ConfigResource(ResourceType.TOPIC, unique_name("missing"))
    assert refusal(admin.describe_configs([missing])) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def alter(admin: AdminClient, topic: str, operation: AlterConfigOpType, name: str, value: str | None) -> Any:
    entry = ConfigEntry(name, value or "", incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    return admin.incremental_alter_configs([resource])


def test_incremental_alter_configs(admin: AdminClient, topic: str) -> None:
    only(alter(admin, topic, AlterConfigOpType.SET, "retention.ms", "5000"))
    eventually(lambda: configs_of(admin, topic)["retention.ms"].value == "5000")
    only(alter(admin, topic, AlterConfigOpType.APPEND, "cleanup.policy", "compact"))
    eventually(lambda: configs_of(admin, topic)["cleanup.policy"].value == "delete,compact")
    assert configs_of(admin, topic)["retention.ms"].value == "5000"
    only(alter(admin, topic, AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete"))
    eventually(lambda: configs_of(admin, topic)["cleanup.policy"].value == "compact")
    only(alter(admin, topic, AlterConfigOpType.DELETE, "retention.ms", None))
    eventually(lambda: configs_of(admin, topic)["retention.ms"].value == "604800000")
    assert configs_of(admin, topic)["retention.ms"].is_default


def test_incremental_alter_configs_refuses_nonsense(admin: AdminClient, topic: str) -> None:
    for name, value in (("no.such", "1"), ("retention.ms", "x"), ("cleanup.policy", "burn")):
        assert refusal(alter(admin, topic, AlterConfigOpType.SET, name, value)) == ck.KafkaError.INVALID_CONFIG
    append = alter(admin, topic, AlterConfigOpType.APPEND, "retention.ms", "1")
    assert refusal(append) == ck.KafkaError.INVALID_CONFIG
    missing = alter(admin, unique_name("missing"), AlterConfigOpType.SET, "retention.ms", "1")
    assert refusal(missing) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert configs_of(admin, topic)["retention.ms"].is_default


def test_incremental_alter_configs_validate_only(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("retention.ms", "7000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    only(admin.incremental_alter_configs([resource], validate_only=True))
    time.sleep(0.1)
    assert configs_of(admin, topic)["retention.ms"].is_default


def test_alter_configs_replaces_the_whole_set(admin: AdminClient, topic: str) -> None:
    """The older AlterConfigs: what is not named goes back to its default."""
    only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "9000"})]))
    eventually(lambda: configs_of(admin, topic)["retention.ms"].value == "9000")
    only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "8000"})]))
    eventually(lambda: configs_of(admin, topic)["segment.ms"].value == "8000")
    assert configs_of(admin, topic)["retention.ms"].is_default


def test_delete_records(bootstrap: str, admin: AdminClient, topic: str) -> None:
    """R-LOG-4: the start moves up; what is below is gone; -1 means everything."""
    Confluent().produce(bootstrap, topic, [Record(b"%d" % number) for number in range(20)])
    assert only(admin.delete_records([ck.TopicPartition(topic, 0, 7)])).low_watermark == 7
    assert Confluent().read(bootstrap, topic, 0, 1, offset=7)[0].value == b"7"
    beyond = admin.delete_records([ck.TopicPartition(topic, 0, 21)])
    assert refusal(beyond) == ck.KafkaError.OFFSET_OUT_OF_RANGE
    assert only(admin.delete_records([ck.TopicPartition(topic, 0, 3)])).low_watermark == 7
    assert only(admin.delete_records([ck.TopicPartition(topic, 0, ck.OFFSET_END)])).low_watermark == 20
    assert Confluent().produce(bootstrap, topic, [Record(b"next")]) == [(0, 20)]


def test_list_offsets(bootstrap: str, admin: AdminClient, topic: str) -> None:
    """Earliest, latest, by time, and the largest time (KIP-734)."""
    times = [5, 90, 30]
    for number in times:
        Confluent().produce(bootstrap, topic, [Record(b"v", timestamp_ms=START_MS + number)])
    partition = ck.TopicPartition(topic, 0)
    asked = {
        EARLIEST: (0, -1),
        LATEST: (3, -1),
        MAX_TIMESTAMP: (1, START_MS + 90),
        START_MS + 6: (1, START_MS + 90),
    }
    for spec, (offset, time_ms) in asked.items():
        found = only(admin.list_offsets({partition: offset_spec(spec)}))
        assert (found.offset, found.timestamp) == (offset, time_ms), spec


def test_list_offsets_of_an_empty_partition(admin: AdminClient, topic: str) -> None:
    partition = ck.TopicPartition(topic, 0)
    for spec, offset in ((EARLIEST, 0), (LATEST, 0), (MAX_TIMESTAMP, -1), (START_MS, -1)):
        assert only(admin.list_offsets({partition: offset_spec(spec)})).offset == offset


def test_max_timestamp_inside_a_compressed_batch(bootstrap: str, admin: AdminClient, topic: str) -> None:
    records = [Record(b"v", timestamp_ms=START_MS + number) for number in (1, 50, 3)]
    Confluent().produce(bootstrap, topic, records, Settings("gzip", linger_ms=200))
    found = only(admin.list_offsets({ck.TopicPartition(topic, 0): offset_spec(MAX_TIMESTAMP)}))
    assert (found.offset, found.timestamp) == (1, START_MS + 50)


def test_describe_cluster(bootstrap: str, admin: AdminClient) -> None:
    described: concurrent.futures.Future[Any] = admin.describe_cluster()
    cluster = described.result(TIMEOUT_S)
    assert len(cluster.cluster_id) == 22
    assert len(cluster.nodes) == 1
    assert f"{cluster.nodes[0].host}:{cluster.nodes[0].port}" == bootstrap
    assert cluster.controller.id == cluster.nodes[0].id
    assert admin.list_topics().cluster_id == cluster.cluster_id


def test_authorized_operations(admin: AdminClient, topic: str) -> None:
    """Asked for, they are all there while no ACL says otherwise."""
    futures = admin.describe_topics(ck.TopicCollection([topic]), include_authorized_operations=True)
    names = {operation.name for operation in only(futures).authorized_operations}
    assert {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"} <= names
    cluster = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert {"CREATE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS"} <= {one.name for one in cluster.authorized_operations}

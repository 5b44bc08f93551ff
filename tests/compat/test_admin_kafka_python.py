"""R-OPS-8: the admin calls of kafka-python 3."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from headrace.testing.raw_client import BatchShape, RawClient, build_batch
from tests.compat.clients import Confluent, Record
from tests.compat.conftest import MakeTopic, unique_name

START_MS = 1_700_000_000_000
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def python_admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def config(admin: KafkaAdminClient, topic: str, name: str) -> str:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found: Any = admin.describe_configs([resource], config_filter="all")["topic"][topic][name]
    return str(found["value"])


def test_create_list_delete(python_admin: KafkaAdminClient) -> None:
    name = unique_name()
    python_admin.create_topics(
        {name: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "77000"}}}
    )
    eventually(lambda: name in python_admin.list_topics())
    (described,) = python_admin.describe_topics([name])
    assert sorted(one["partition_index"] for one in described["partitions"]) == [0, 1]
    assert config(python_admin, name, "retention.ms") == "77000"
    python_admin.delete_topics([name])
    eventually(lambda: name not in python_admin.list_topics())


def test_validate_only_and_assignment(python_admin: KafkaAdminClient) -> None:
    name = unique_name()
    python_admin.create_topics([name], validate_only=True)
    time.sleep(0.2)
    assert name not in python_admin.list_topics()
    broker = python_admin.describe_cluster()["brokers"][0]["broker_id"]
    python_admin.create_topics({name: {"assignments": {0: [broker], 1: [broker]}}})
    eventually(lambda: name in python_admin.list_topics())
    python_admin.delete_topics([name])


def test_refusals(python_admin: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        python_admin.create_topics([topic])
    with pytest.raises(InvalidTopicError):
        python_admin.create_topics(["no/good"])
    with pytest.raises(InvalidReplicationFactorError):
        python_admin.create_topics({unique_name(): {"num_partitions": 1, "replication_factor": 7}})
    with pytest.raises(UnknownTopicOrPartitionError):
        python_admin.delete_topics([unique_name("missing")])
    with pytest.raises(InvalidPartitionsError):
        python_admin.create_partitions({topic: 1})


def test_create_partitions(python_admin: KafkaAdminClient, topic: str) -> None:
    """R-TOP-3."""
    python_admin.create_partitions({topic: 4})
    eventually(lambda: len(python_admin.describe_topics([topic])[0]["partitions"]) == 4)


def test_alter_and_reset_configs(python_admin: KafkaAdminClient, topic: str) -> None:
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": (AlterConfigOp.SET, "4000")})
    python_admin.alter_configs([changed])
    eventually(lambda: config(python_admin, topic, "retention.ms") == "4000")
    python_admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
    eventually(lambda: config(python_admin, topic, "retention.ms") == "604800000")


def test_alter_configs_not_incremental(python_admin: KafkaAdminClient, topic: str) -> None:
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "30000"})
    python_admin.alter_configs([changed], incremental=False)
    eventually(lambda: config(python_admin, topic, "segment.ms") == "30000")


def test_broker_configs_with_synonyms(python_admin: KafkaAdminClient) -> None:
    broker = str(python_admin.describe_cluster()["brokers"][0]["broker_id"])
    resource = ConfigResource(ConfigResourceType.BROKER, broker)
    found = python_admin.describe_configs([resource], include_synonyms=True, config_filter="all")["broker"][broker]
    assert found["log.retention.hours"]["value"] == "168"
    assert any(one["name"] == "log.segment.bytes" for one in found["log.segment.bytes"]["synonyms"])


def test_delete_records_and_offsets(bootstrap: str, python_admin: KafkaAdminClient, topic: str) -> None:
    """R-LOG-4."""
    records = [Record(b"v", timestamp_ms=START_MS + number) for number in range(10)]
    Confluent().produce(bootstrap, topic, records)
    target = TopicPartition(topic, 0)
    assert python_admin.delete_records({target: 4})[target]["low_watermark"] == 4
    offsets = {spec: python_admin.list_partition_offsets({target: spec})[target].offset for spec in OffsetSpec}
    assert offsets[OffsetSpec.EARLIEST] == 4
    assert offsets[OffsetSpec.LATEST] == 10
    assert offsets[OffsetSpec.MAX_TIMESTAMP] == 9


def test_describe_cluster(bootstrap: str, python_admin: KafkaAdminClient) -> None:
    cluster = python_admin.describe_cluster()
    assert len(cluster["cluster_id"]) == 22
    assert [f"{one['host']}:{one['port']}" for one in cluster["brokers"]] == [bootstrap]


def test_describe_log_dirs(bootstrap: str, python_admin: KafkaAdminClient, make_topic: MakeTopic) -> None:
    name = make_topic(2)
    Confluent().produce(bootstrap, name, [Record(b"x" * 1000, partition=1)])
    (broker,) = python_admin.describe_log_dirs({name: [0, 1]})
    (log_dir,) = broker["log_dirs"]
    assert log_dir["error_code"] == 0
    (found,) = log_dir["topics"]
    assert found["name"] == name
    sizes = {one["partition_index"]: one["partition_size"] for one in found["partitions"]}
    assert sizes[0] == 0
    assert 1000 < sizes[1] < 2000
    assert log_dir["total_bytes"] > 0
    assert log_dir["usable_bytes"] > 0


def test_describe_topic_partitions_in_pages(python_admin: KafkaAdminClient, make_topic: MakeTopic) -> None:
    """KIP-966: a cursor says where to go on."""
    name = make_topic(5)
    cursor: Any = None
    seen: list[int] = []
    while True:
        page = python_admin.describe_topic_partitions([name], response_partition_limit=2, cursor=cursor)
        for described in page["topics"]:
            seen += [one["partition_index"] for one in described["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_describe_producers(bootstrap: str, python_admin: KafkaAdminClient, topic: str) -> None:
    """R-PRO-3: what the broker remembers of idempotent producers."""
    with RawClient(bootstrap) as raw:
        for sequence in range(3):
            shape = BatchShape(producer_id=5_000_001, producer_epoch=2, base_sequence=sequence)
            assert raw.produce(topic, 0, build_batch([b"v"], shape)).error == 0
    target = TopicPartition(topic, 0)
    (state,) = python_admin.describe_producers([target])[target].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (5_000_001, 2, 2)

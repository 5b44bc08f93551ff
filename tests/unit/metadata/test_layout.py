"""The bytes in the store are read back as what they were, and stay readable by those who know Kafka's."""

from __future__ import annotations

import json

from headrace.coordination.contract import TreeNode
from headrace.metadata.image import BrokerImage, Endpoint, PartitionImage
from headrace.metadata.layout import (
    broker_config_path,
    change_path,
    decode_broker,
    decode_config,
    decode_state,
    decode_topic,
    encode_broker,
    encode_config,
    encode_state,
    encode_topic,
    new_cluster_id,
    state_path,
)
from headrace.model.topics import TopicId


def test_topic() -> None:
    topic_id = TopicId(bytes(range(16)))
    replicas = [(number, 1) for number in range(12)]
    value = encode_topic(topic_id, replicas)
    assert decode_topic(TreeNode(value, 3)) == (topic_id, replicas)
    assert json.loads(value)["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert json.loads(value)["partitions"]["11"] == [11, 1]


def test_state_takes_its_epoch_from_the_node() -> None:
    partition = PartitionImage((1, 2), 2, 5, (2,), partition_epoch=9, leader_incarnation=31)
    value = encode_state(partition, controller_epoch=4)
    assert json.loads(value) == {
        "version": 1,
        "leader": 2,
        "leader_epoch": 5,
        "isr": [2],
        "controller_epoch": 4,
        "leader_incarnation": 31,
        "replicas": [1, 2],
    }
    assert decode_state(TreeNode(value, 9), (1, 2)) == partition


def test_eligible_leaders_are_stored_while_there_are_any() -> None:
    """And a state of an older version, which knows none, is read."""
    partition = PartitionImage((1, 2, 3), 2, 5, (2,), 9, 31, elr=(1,), last_known_elr=(3,))
    value = encode_state(partition, controller_epoch=4)
    assert decode_state(TreeNode(value, 9), (1, 2, 3)) == partition
    fields = json.loads(value)
    assert (fields.pop("elr"), fields.pop("last_known_elr")) == ([1], [3])
    older = decode_state(TreeNode(json.dumps(fields).encode(), 9), (1, 2, 3))
    assert older == PartitionImage((1, 2, 3), 2, 5, (2,), 9, 31)


def test_broker_and_config() -> None:
    endpoints = (Endpoint("PLAINTEXT", "host", 9092, "PLAINTEXT"),)
    broker = BrokerImage(3, 8, endpoints, "rack", min_in_sync=2)
    assert decode_broker(3, TreeNode(encode_broker(broker, "session"), 0)) == broker
    assert decode_config(TreeNode(encode_config({"a": "ü"}), 0)) == {"a": "ü"}


def test_paths() -> None:
    assert state_path("t", 4) == "/brokers/topics/t/partitions/4/state"
    assert broker_config_path("") == "/config/brokers/<default>"
    assert broker_config_path("1") == "/config/brokers/1"
    assert change_path(9) < change_path(10)


def test_cluster_ids_are_22_characters() -> None:
    assert new_cluster_id(b"\xff" * 16) == "_" * 21 + "w"


def test_a_move_is_part_of_the_state() -> None:
    partition = PartitionImage((3, 1, 2), 2, 5, (2,), 9, 31, target=(3, 1), original=(1, 2))
    assert decode_state(TreeNode(encode_state(partition, 4), 9), (1, 2)) == partition


def test_a_state_of_an_older_version_has_the_replicas_of_its_topic() -> None:
    value = b'{"version":1,"leader":2,"leader_epoch":5,"isr":[2],"controller_epoch":4}'
    assert decode_state(TreeNode(value, 9), (1, 2)) == PartitionImage((1, 2), 2, 5, (2,), 9, -1)

"""Brokers that get nothing new (KIP-1066)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.topic_config import DynamicConfigs, topic_defaults
from headrace.metadata.cordons import CORDONED, cordoned_directories, is_cordoned, open_brokers
from headrace.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from headrace.metadata.partition_decisions import decide_more_replicas
from headrace.metadata.reassignments import Reassignment, decide_reassignments
from headrace.metadata.topic_decisions import TopicCreation, TopicDefaults, decide_create_topics
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId, TopicPartition

TOPIC_ID = TopicId(bytes(range(16)))


def cluster(**cordoned: str) -> MetadataImage:
    """Three brokers with two directories each; `b2="*"` is a dynamic setting of broker 2."""
    brokers = {n: BrokerImage(n, n * 10, (), log_dirs=("/a", "/b")) for n in (1, 2, 3)}
    topic = TopicImage("t", TOPIC_ID, (PartitionImage((1,), 1, 0, (1,), 0, 10),))
    configs = {name[1:]: {CORDONED: text} for name, text in cordoned.items()}
    return MetadataImage(
        "c", brokers=brokers, topics={"t": topic}, topics_by_id={TOPIC_ID: topic}, broker_configs=configs
    )


@pytest.mark.parametrize(
    ("text", "directories", "whole"),
    [
        ("*", {"/a", "/b"}, True),
        ("/a", {"/a"}, False),
        ("/a, /b", {"/a", "/b"}, True),
        ("", set(), False),
    ],
)
def test_some_directories_or_the_broker(text: str, directories: set[str], whole: bool) -> None:
    image = cluster(b2=text)
    assert cordoned_directories(image, image.brokers[2]) == directories
    assert is_cordoned(image, image.brokers[2]) == whole
    assert sorted(open_brokers(image)) == ([1, 3] if whole else [1, 2, 3])


def test_the_file_counts_until_something_else_is_set() -> None:
    image = cluster()
    image = replace(image, brokers={2: replace(image.brokers[2], cordoned=("*",))})
    assert is_cordoned(image, image.brokers[2])
    assert not is_cordoned(replace(image, broker_configs={"2": {CORDONED: ""}}), image.brokers[2])


def created(image: MetadataImage, topic: TopicCreation) -> TopicImage | KafkaError:
    configs = topic_defaults(BrokerConfig.build(flags={}), DynamicConfigs.of({}, 1))
    (outcome,) = decide_create_topics(image, [topic], TopicDefaults(1, 1, configs), lambda: TopicId(bytes(16)))
    return outcome


def test_nothing_new_is_placed_there() -> None:
    image = cluster(b2="*")
    topic = created(image, TopicCreation("new", 4, 2))
    assert isinstance(topic, TopicImage)
    assert {one for partition in topic.partitions for one in partition.replicas} == {1, 3}
    too_many = created(image, TopicCreation("new", 1, 3))
    assert isinstance(too_many, KafkaError)
    assert too_many.code is ErrorCode.INVALID_REPLICATION_FACTOR
    by_hand = created(image, TopicCreation("new", assignments=[(0, (2,))]))
    assert isinstance(by_hand, KafkaError)
    assert by_hand.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    (moved,) = decide_reassignments(image, [Reassignment(TopicPartition("t", 0), (2, 1))])
    assert isinstance(moved, KafkaError)
    (grown,) = decide_more_replicas(image, {"t": 3})
    assert sorted(grown.partitions[0].replicas) == [1, 3]


def test_what_is_there_may_stay() -> None:
    image = cluster(b1="*")
    (grown,) = decide_reassignments(image, [Reassignment(TopicPartition("t", 0), (1, 2))])
    assert isinstance(grown, PartitionImage)

"""Which `min.insync.replicas` and which unclean election hold for a partition, by its leader."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from headrace.metadata.topic_rules import MIN_IN_SYNC, UNCLEAN, TopicRules
from headrace.model.topics import TopicId

TOPIC_ID = TopicId(bytes(range(16)))


def rules(
    topic: Mapping[str, str], brokers: Mapping[str, Mapping[str, str]], in_file: int | None = 2
) -> tuple[TopicRules, TopicImage]:
    """Broker 1 has a file that says `in_file`; the controller's own says 3."""
    found = TopicImage("t", TOPIC_ID, (PartitionImage((1, 2, 3, 4, 5), 1, 0, (1,)),), topic)
    image = MetadataImage(
        "c", 1, 1, {1: BrokerImage(1, 0, (), min_in_sync=in_file)}, {"t": found}, broker_configs=brokers
    )
    return TopicRules(BrokerConfig.build(flags={MIN_IN_SYNC: "3", "node.id": "2"}), image), found


@pytest.mark.parametrize(
    ("topic", "brokers", "in_file", "needed"),
    [
        ({MIN_IN_SYNC: "5"}, {"1": {MIN_IN_SYNC: "4"}}, 2, 5),
        ({}, {"1": {MIN_IN_SYNC: "4"}, "": {MIN_IN_SYNC: "1"}}, 2, 4),
        ({}, {"2": {MIN_IN_SYNC: "4"}, "": {MIN_IN_SYNC: "1"}}, 2, 1),
        ({}, {}, 2, 2),
        ({}, {}, None, 3),
        ({MIN_IN_SYNC: "9"}, {}, 2, 5),
    ],
    ids=["topic", "broker", "all brokers", "the leader's file", "a broker of an older version", "not above RF"],
)
def test_min_in_sync(
    topic: dict[str, str], brokers: dict[str, dict[str, str]], in_file: int | None, needed: int
) -> None:
    found, image = rules(topic, brokers, in_file)
    assert found.min_in_sync(image, image.partitions[0]) == needed


@pytest.mark.parametrize(
    ("topic", "brokers", "allowed"),
    [
        ({}, {}, False),
        ({UNCLEAN: "TRUE"}, {}, True),
        ({}, {"": {UNCLEAN: "true"}}, True),
        ({UNCLEAN: "false"}, {"": {UNCLEAN: "true"}}, False),
    ],
)
def test_unclean_election(topic: dict[str, str], brokers: dict[str, dict[str, str]], allowed: bool) -> None:
    found, image = rules(topic, brokers)
    assert found.allows_unclean(image) is allowed

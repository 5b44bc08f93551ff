"""What becomes of requests about topics: codes are Kafka's (R-TOP-1, R-TOP-3, R-TOP-5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.topic_config import topic_defaults
from headrace.metadata.image import BrokerImage, MetadataImage, TopicImage
from headrace.metadata.topic_decisions import (
    NewPartitions,
    TopicCreation,
    TopicDefaults,
    TopicOutcome,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.limits import MAX_PARTITIONS_PER_REQUEST
from headrace.model.topics import TopicId

DEFAULTS = TopicDefaults(2, 1, topic_defaults(BrokerConfig.build()))


def ids() -> Callable[[], TopicId]:
    numbers = count(1)
    return lambda: TopicId(next(numbers).to_bytes(16, "big"))


def cluster(size: int = 3) -> MetadataImage:
    return MetadataImage("c", brokers={number: BrokerImage(number, 1, ()) for number in range(size)})


def create(image: MetadataImage, *requests: TopicCreation) -> list[TopicOutcome]:
    return decide_create_topics(image, requests, DEFAULTS, ids())


def with_topics(image: MetadataImage, *requests: TopicCreation) -> MetadataImage:
    made = create(image, *requests)
    assert all(isinstance(topic, TopicImage) for topic in made), made
    return image.with_topics([topic for topic in made if isinstance(topic, TopicImage)], [])


def codes(outcomes: Sequence[TopicOutcome]) -> list[ErrorCode]:
    return [outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE for outcome in outcomes]


def test_a_topic_is_made_with_what_was_asked() -> None:
    (topic,) = create(cluster(), TopicCreation("t", 4, 2, configs={"retention.ms": "1000"}))
    assert isinstance(topic, TopicImage)
    assert topic.id == (1).to_bytes(16, "big")
    assert topic.configs == {"retention.ms": "1000"}
    assert len(topic.partitions) == 4
    for partition in topic.partitions:
        assert len(partition.replicas) == 2
        assert partition.isr == partition.replicas
        assert (partition.leader, partition.leader_epoch) == (partition.replicas[0], 0)


def test_minus_one_takes_the_broker_s_defaults() -> None:
    (topic,) = create(cluster(), TopicCreation("t"))
    assert isinstance(topic, TopicImage)
    assert [len(partition.replicas) for partition in topic.partitions] == [1, 1]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (TopicCreation(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation("there.is"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (TopicCreation("there_is"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicCreation("t", 0), ErrorCode.INVALID_PARTITIONS),
        (TopicCreation("t", -2), ErrorCode.INVALID_PARTITIONS),
        (TopicCreation("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicCreation("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicCreation("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicCreation("t", configs={"no.such.setting": "1"}), ErrorCode.INVALID_CONFIG),
        (TopicCreation("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (TopicCreation("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (TopicCreation("t", 1, assignments=[(0, (0,))]), ErrorCode.INVALID_REQUEST),
        (TopicCreation("t", -1, 1, assignments=[(0, (0,))]), ErrorCode.INVALID_REQUEST),
        (TopicCreation("t", assignments=[(0, (0,)), (0, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicCreation("t", assignments=[(0, (0,)), (2, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicCreation("t", assignments=[(0, ())]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicCreation("t", assignments=[(0, (9,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicCreation("t", assignments=[(0, (1, 1))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicCreation("t", assignments=[(0, (0, 1)), (1, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_bad_topics_are_refused_and_the_others_are_made(request_: TopicCreation, code: ErrorCode) -> None:
    image = with_topics(cluster(), TopicCreation("there.is"))
    assert codes(create(image, request_, TopicCreation("good"))) == [code, ErrorCode.NONE]


def test_a_manual_assignment_is_kept_whatever_its_order() -> None:
    (topic,) = create(cluster(), TopicCreation("t", assignments=[(1, (2, 0)), (0, (1, 2))]))
    assert isinstance(topic, TopicImage)
    assert [partition.replicas for partition in topic.partitions] == [(1, 2), (2, 0)]
    assert [partition.leader for partition in topic.partitions] == [1, 2]


def test_a_name_twice_in_one_request_is_refused_both_times() -> None:
    outcomes = create(cluster(), TopicCreation("t"), TopicCreation("u"), TopicCreation("t"))
    assert codes(outcomes) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_names_that_collide_inside_one_request() -> None:
    outcomes = create(cluster(), TopicCreation("a.b"), TopicCreation("a_b"), TopicCreation("a-b"))
    assert codes(outcomes) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]


def test_a_refused_topic_does_not_take_its_name() -> None:
    outcomes = create(cluster(), TopicCreation("a.b", 0), TopicCreation("a_b"))
    assert codes(outcomes) == [ErrorCode.INVALID_PARTITIONS, ErrorCode.NONE]


def test_a_request_for_too_many_partitions_makes_nothing() -> None:
    outcomes = create(cluster(), TopicCreation("t", MAX_PARTITIONS_PER_REQUEST), TopicCreation("u", 1))
    assert codes(outcomes) == [ErrorCode.POLICY_VIOLATION] * 2
    assert codes(create(cluster(), TopicCreation("t", MAX_PARTITIONS_PER_REQUEST))) == [ErrorCode.NONE]


def test_delete_by_name_and_by_id() -> None:
    image = with_topics(cluster(), TopicCreation("t"), TopicCreation("u"))
    outcomes = decide_delete_topics(image, ["t", image.topics["u"].id, "nowhere", TopicId(b"?" * 16)])
    assert outcomes[:2] == [image.topics["t"], image.topics["u"]]
    assert codes(outcomes[2:]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_topic_named_twice_is_not_deleted() -> None:
    image = with_topics(cluster(), TopicCreation("t"))
    assert codes(decide_delete_topics(image, ["t", "t"])) == [ErrorCode.INVALID_REQUEST] * 2
    assert codes(decide_delete_topics(image, ["t", image.topics["t"].id])) == [ErrorCode.INVALID_REQUEST] * 2


def test_partitions_are_added_and_the_old_ones_stay() -> None:
    image = with_topics(cluster(), TopicCreation("t", 2, 2))
    (topic,) = decide_create_partitions(image, [NewPartitions("t", 5)])
    assert isinstance(topic, TopicImage)
    assert topic.partitions[:2] == image.topics["t"].partitions
    assert [len(partition.replicas) for partition in topic.partitions] == [2] * 5
    assert topic.id == image.topics["t"].id


def test_added_partitions_can_be_assigned() -> None:
    image = with_topics(cluster(), TopicCreation("t", 1, 2))
    (topic,) = decide_create_partitions(image, [NewPartitions("t", 3, [(2, 1), (0, 2)])])
    assert isinstance(topic, TopicImage)
    assert [partition.replicas for partition in topic.partitions[1:]] == [(2, 1), (0, 2)]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (NewPartitions("nowhere", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 2_000_000_000), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 20_000), ErrorCode.POLICY_VIOLATION),
        (NewPartitions("t", 4, [(0,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [(0, 1)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [(8,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_bad_growth_is_refused(request_: NewPartitions, code: ErrorCode) -> None:
    image = with_topics(cluster(), TopicCreation("t", 2, 1), TopicCreation("u", 1, 1))
    assert codes(decide_create_partitions(image, [request_, NewPartitions("u", 2)])) == [code, ErrorCode.NONE]


def test_a_topic_grown_twice_in_one_request_is_refused() -> None:
    image = with_topics(cluster(), TopicCreation("t", 1))
    outcomes = decide_create_partitions(image, [NewPartitions("t", 2), NewPartitions("t", 3)])
    assert codes(outcomes) == [ErrorCode.INVALID_REQUEST] * 2

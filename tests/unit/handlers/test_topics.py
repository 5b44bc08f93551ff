"""CreateTopics, DeleteTopics, CreatePartitions over the wire; their rules are tested with the controller."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicId
from headrace.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

DYNAMIC_TOPIC_CONFIG = 1


def topic(name: str, partitions: int = -1, **configs: str) -> CreatableTopic:
    rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=rows)


async def test_a_topic_is_ready_when_the_answer_comes(bench: Any) -> None:
    response = await bench.call(CreateTopicsRequest(topics=[topic("a", 3, retention_ms="1000")]), 7)
    (row,) = response.topics
    assert (row.error_code, row.error_message, row.num_partitions, row.replication_factor) == (0, None, 3, 1)
    assert row.topic_id == bench.image.topics["a"].id
    configs = {config.name: config for config in row.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", DYNAMIC_TOPIC_CONFIG)
    assert configs["cleanup.policy"].value == "delete"
    bench.append("a", 1)


async def test_validate_only_creates_nothing(bench: Any) -> None:
    response = await bench.call(CreateTopicsRequest(topics=[topic("a", 3)], validate_only=True), 5)
    assert (response.topics[0].error_code, response.topics[0].num_partitions) == (0, 3)
    assert not bench.image.topics


async def test_given_assignments(bench: Any) -> None:
    assigned = topic("a")
    assigned.assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in (1, 0)]
    response = await bench.call(CreateTopicsRequest(topics=[assigned]), 7)
    assert (response.topics[0].error_code, response.topics[0].num_partitions) == (0, 2)


async def test_each_topic_has_its_own_error_and_a_repeated_one_is_told_once(bench: Any) -> None:
    await bench.create_topic("there")
    topics = [
        topic("there"),
        topic("a b"),
        topic("x", 0),
        topic("y", nope="1"),
        topic("ok"),
        topic("d"),
        topic("d"),
    ]
    response = await bench.call(CreateTopicsRequest(topics=topics), 7)
    assert {row.name: row.error_code for row in response.topics} == {
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x": ErrorCode.INVALID_PARTITIONS,
        "y": ErrorCode.INVALID_CONFIG,
        "ok": ErrorCode.NONE,
        "d": ErrorCode.INVALID_REQUEST,
    }
    assert len(response.topics) == 6
    failed = next(row for row in response.topics if row.name == "y")
    assert (failed.num_partitions, failed.configs, failed.topic_id) == (-1, [], NO_TOPIC_ID)
    assert "nope" in failed.error_message


async def test_deletion_by_name_and_by_id(bench: Any) -> None:
    await bench.create_topic("a")
    second = await bench.create_topic("b")
    old = await bench.call(DeleteTopicsRequest(topic_names=["a", "nope"]), 5)
    assert {row.name: row.error_code for row in old.responses} == {
        "a": 0,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    unknown = TopicId(b"?" * 16)
    states = [DeleteTopicState(topic_id=second.id), DeleteTopicState(topic_id=unknown)]
    new = await bench.call(DeleteTopicsRequest(topics=states), 6)
    assert [(row.name, row.topic_id, row.error_code) for row in new.responses] == [
        ("b", second.id, ErrorCode.NONE),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert not bench.image.topics
    with pytest.raises(KafkaError):
        bench.partition("a")


async def test_a_topic_to_delete_has_one_name(bench: Any) -> None:
    kept = await bench.create_topic("a")
    states = [DeleteTopicState(name="a", topic_id=kept.id), DeleteTopicState()]
    response = await bench.call(DeleteTopicsRequest(topics=states), 6)
    assert [row.error_code for row in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    twice = await bench.call(DeleteTopicsRequest(topic_names=["a", "a"]), 1)
    assert [row.error_code for row in twice.responses] == [ErrorCode.INVALID_REQUEST]
    assert "a" in bench.image.topics


async def test_deletion_can_be_switched_off(bench_with: Any) -> None:
    async with bench_with({"delete.topic.enable": "false"}) as bench:
        await bench.create_topic("a")
        for version, code in ((2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)):
            response = await bench.call(DeleteTopicsRequest(topic_names=["a"]), version)
            assert response.responses[0].error_code == code
        assert "a" in bench.image.topics


def grow(name: str, count: int, *assignments: int) -> CreatePartitionsTopic:
    rows = [CreatePartitionsAssignment(broker_ids=[broker]) for broker in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=rows or None)


async def test_partitions_are_added(bench: Any) -> None:
    """R-TOP-3."""
    await bench.create_topic("a", 1)
    dry = await bench.call(CreatePartitionsRequest(topics=[grow("a", 3)], validate_only=True), 3)
    assert dry.results[0].error_code == 0
    assert len(bench.image.topics["a"].partitions) == 1
    await bench.call(CreatePartitionsRequest(topics=[grow("a", 3)]), 3)
    assert bench.partition("a", 2).log.end_offset == 0
    await bench.call(CreatePartitionsRequest(topics=[grow("a", 4, 1)]), 0)
    assert len(bench.image.topics["a"].partitions) == 4


async def test_partitions_that_cannot_be_added(bench: Any) -> None:
    await bench.create_topic("a", 2)
    topics = [grow("a", 2), grow("nope", 2), grow("a", 3)]
    response = await bench.call(CreatePartitionsRequest(topics=topics), 3)
    assert {row.name: row.error_code for row in response.results} == {
        "a": ErrorCode.INVALID_REQUEST,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    response = await bench.call(CreatePartitionsRequest(topics=[grow("a", 1)]), 3)
    assert response.results[0].error_code == ErrorCode.INVALID_PARTITIONS


async def test_an_error_of_the_whole_is_told_for_each(bench: Any) -> None:
    """Their responses have no place for an error of the request."""
    await bench.create_topic("a")
    await bench.broker.controller.close()
    created = await bench.call(CreateTopicsRequest(topics=[topic("b")], timeout_ms=50), 7)
    deleted = await bench.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=50), 5)
    grown = await bench.call(CreatePartitionsRequest(topics=[grow("a", 3)], timeout_ms=50), 3)
    for row in (created.topics[0], deleted.responses[0], grown.results[0]):
        assert row.error_code == ErrorCode.NOT_CONTROLLER

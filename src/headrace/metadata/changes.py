"""What a controller can change, as values: decisions return them, this module says what they do to the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.coordination.contract import Create, Delete, Op, Put
from headrace.metadata.image import TopicImage
from headrace.metadata.layout import (
    broker_config_path,
    encode_config,
    encode_state,
    encode_topic,
    group_config_path,
    partitions_path,
    state_path,
    topic_config_path,
    topic_path,
)


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic: TopicImage


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    topic: TopicImage


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    topic: TopicImage
    """As it is afterwards."""
    first: int
    """The first of the new partitions."""


@dataclass(frozen=True, slots=True)
class TopicConfigured:
    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BrokerConfigured:
    name: str
    """The broker's id, or empty for every broker."""
    configs: Mapping[str, str]
    first_time: bool
    """Whether there is no node for it yet."""


@dataclass(frozen=True, slots=True)
class GroupConfigured:
    name: str
    configs: Mapping[str, str]
    """None left: its node goes."""
    first_time: bool
    """Whether there is no node for it yet."""


Change = TopicCreated | TopicDeleted | PartitionsAdded | TopicConfigured | BrokerConfigured | GroupConfigured


def operations(change: Change, controller_epoch: int) -> Iterator[Op]:
    """What the change is in the store, parents before children (and the other way round for a deletion)."""
    match change:
        case TopicCreated(topic):
            yield Create(topic_path(topic.name), _topic_value(topic))
            yield Create(partitions_path(topic.name), b"")
            yield from _create_partitions(topic, 0, controller_epoch)
            yield Create(topic_config_path(topic.name), encode_config(topic.configs))
        case TopicDeleted(topic):
            for index in range(len(topic.partitions)):
                yield Delete(state_path(topic.name, index))
                yield Delete(f"{partitions_path(topic.name)}/{index}")
            yield Delete(partitions_path(topic.name))
            yield Delete(topic_path(topic.name))
            yield Delete(topic_config_path(topic.name))
        case PartitionsAdded(topic, first):
            yield Put(topic_path(topic.name), _topic_value(topic))
            yield from _create_partitions(topic, first, controller_epoch)
        case TopicConfigured(name, configs):
            yield Put(topic_config_path(name), encode_config(configs))
        case BrokerConfigured(name, configs, first_time):
            path, value = broker_config_path(name), encode_config(configs)
            yield Create(path, value) if first_time else Put(path, value)
        case GroupConfigured(name, configs, first_time):
            path, value = group_config_path(name), encode_config(configs)
            if configs:
                yield Create(path, value) if first_time else Put(path, value)
            elif not first_time:
                yield Delete(path)


def changed_topics(changes: Sequence[Change]) -> list[str]:
    names: dict[str, None] = {}
    for change in changes:
        match change:
            case TopicCreated(topic) | TopicDeleted(topic) | PartitionsAdded(topic):
                names[topic.name] = None
            case TopicConfigured(name):
                names[name] = None
    return list(names)


def changed_brokers(changes: Sequence[Change]) -> list[str]:
    return [change.name for change in changes if isinstance(change, BrokerConfigured)]


def changed_groups(changes: Sequence[Change]) -> list[str]:
    return [change.name for change in changes if isinstance(change, GroupConfigured)]


def _topic_value(topic: TopicImage) -> bytes:
    return encode_topic(topic.id, [partition.replicas for partition in topic.partitions])


def _create_partitions(topic: TopicImage, first: int, controller_epoch: int) -> Iterator[Op]:
    for index in range(first, len(topic.partitions)):
        yield Create(f"{partitions_path(topic.name)}/{index}", b"")
        yield Create(state_path(topic.name, index), encode_state(topic.partitions[index], controller_epoch))

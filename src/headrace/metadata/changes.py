"""What a controller can change, as values: decisions return them, this module says what they do to the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.coordination.contract import Create, Delete, Op, Put
from headrace.metadata.image import PartitionImage, TopicImage
from headrace.metadata.layout import (
    FORMAT,
    NODE_VERSION,
    acl_path,
    broker_config_path,
    encode_acl,
    encode_config,
    encode_quotas,
    encode_state,
    encode_topic,
    encode_user,
    group_config_path,
    partition_path,
    partitions_path,
    quota_path,
    state_fields,
    state_path,
    suspect_path,
    topic_config_path,
    topic_path,
    user_path,
)
from headrace.security.acl import Acl
from headrace.security.quota import QuotaEntity, entity_text
from headrace.security.scram import ScramCredential


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
class PartitionsRemoved:
    """The last partitions of a topic that is about to be deleted."""

    topic: TopicImage
    """As it is afterwards."""
    end: int
    """After the last of those that go."""


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Another leader, in-sync set or replicas; written only if the partition is as it was at the decision."""

    topic: str
    partitions: Mapping[int, PartitionImage]
    """As they are afterwards, but for the partition epoch: that is still the one they were decided on."""


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


@dataclass(frozen=True, slots=True)
class SuspectCleared:
    """A broker that may have lost records has left the in-sync sets: from now on it is like any other.

    Unless it has reported more since the decision.
    """

    broker_id: int
    node_version: int


@dataclass(frozen=True, slots=True)
class AclCreated:
    acl: Acl


@dataclass(frozen=True, slots=True)
class UserChanged:
    name: str
    credentials: Mapping[str, ScramCredential]
    """By mechanism; none left: its node goes."""
    first_time: bool
    """Whether there is no node for it yet."""


@dataclass(frozen=True, slots=True)
class QuotaChanged:
    entity: QuotaEntity
    values: Mapping[str, float]
    """By name; none left: its node goes."""
    first_time: bool
    """Whether there is no node for it yet."""


@dataclass(frozen=True, slots=True)
class AclDeleted:
    acl_id: str


@dataclass(frozen=True, slots=True)
class BrokerForgotten:
    """What the store still knows of a broker that will not come back."""

    broker_id: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LevelRaised:
    """The format of the metadata, if its node is as it was at the decision."""

    level: int
    node_version: int


Change = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | PartitionsRemoved
    | PartitionsChanged
    | TopicConfigured
    | BrokerConfigured
    | GroupConfigured
    | SuspectCleared
    | BrokerForgotten
    | LevelRaised
    | AclCreated
    | AclDeleted
    | UserChanged
    | QuotaChanged
)


def operations(change: Change, controller_epoch: int) -> Iterator[Op]:
    """What the change is in the store, parents before children (and the other way round for a deletion)."""
    match change:
        case TopicCreated(topic):
            yield Create(topic_path(topic.name), _topic_value(topic))
            yield Create(partitions_path(topic.name), b"")
            yield from _create_partitions(topic, 0, controller_epoch)
            yield Create(topic_config_path(topic.name), encode_config(topic.configs))
        case TopicDeleted(topic):
            yield from _delete_partitions(topic.name, 0, len(topic.partitions))
            yield Delete(partitions_path(topic.name))
            yield Delete(topic_path(topic.name))
            yield Delete(topic_config_path(topic.name))
        case PartitionsAdded(topic, first):
            yield Put(topic_path(topic.name), _topic_value(topic))
            yield from _create_partitions(topic, first, controller_epoch)
        case PartitionsRemoved(topic, end):
            yield from _delete_partitions(topic.name, len(topic.partitions), end)
            yield Put(topic_path(topic.name), _topic_value(topic))
        case PartitionsChanged(name, partitions):
            for index, partition in partitions.items():
                state = encode_state(partition, controller_epoch)
                yield Put(state_path(name, index), state, partition.partition_epoch)
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
        case SuspectCleared(broker_id, node_version):
            yield Delete(suspect_path(broker_id), node_version)
        case LevelRaised(level, node_version):
            yield Put(FORMAT, str(level).encode(), node_version)
        case BrokerForgotten(_, paths):
            for path in paths:
                yield Delete(path)
        case AclCreated(acl):
            yield Create(acl_path(acl.id), encode_acl(acl))
        case AclDeleted(acl_id):
            yield Delete(acl_path(acl_id))
        case UserChanged(name, credentials, first_time):
            path, value = user_path(name), encode_user(credentials)
            if not credentials:
                yield Delete(path)
            else:
                yield Create(path, value) if first_time else Put(path, value)
        case QuotaChanged(entity, values, first_time):
            path, value = quota_path(entity), encode_quotas(values)
            if not values:
                yield Delete(path)
            else:
                yield Create(path, value) if first_time else Put(path, value)


def changed_topics(changes: Sequence[Change]) -> list[str]:
    names: dict[str, None] = {}
    for change in changes:
        match change:
            case TopicCreated(topic) | TopicDeleted(topic) | PartitionsAdded(topic) | PartitionsRemoved(topic):
                names[topic.name] = None
            case TopicConfigured(name):
                names[name] = None
    return list(names)


def changed_partitions(changes: Sequence[Change]) -> dict[str, list[int]]:
    """Partitions to read again of topics that are otherwise as they were."""
    whole = set(changed_topics(changes))
    return {
        change.topic: sorted(change.partitions)
        for change in changes
        if isinstance(change, PartitionsChanged) and change.topic not in whole
    }


def changed_states(changes: Sequence[Change], controller_epoch: int) -> dict[str, dict[int, dict[str, Any]]]:
    """What those partitions are after the write: a write makes the version of a node one higher."""
    whole = set(changed_topics(changes))
    return {
        change.topic: {
            index: {**state_fields(partition, controller_epoch), NODE_VERSION: partition.partition_epoch + 1}
            for index, partition in change.partitions.items()
        }
        for change in changes
        if isinstance(change, PartitionsChanged) and change.topic not in whole
    }


def changed_brokers(changes: Sequence[Change]) -> list[str]:
    names = {change.name: None for change in changes if isinstance(change, BrokerConfigured)}
    names.update((str(change.broker_id), None) for change in changes if isinstance(change, BrokerForgotten))
    return list(names)


def changed_groups(changes: Sequence[Change]) -> list[str]:
    return [change.name for change in changes if isinstance(change, GroupConfigured)]


def changed_users(changes: Sequence[Change]) -> list[str]:
    return [change.name for change in changes if isinstance(change, UserChanged)]


def changed_quotas(changes: Sequence[Change]) -> list[str]:
    return [entity_text(change.entity) for change in changes if isinstance(change, QuotaChanged)]


def changed_acls(changes: Sequence[Change]) -> list[str]:
    created = [change.acl.id for change in changes if isinstance(change, AclCreated)]
    return created + [change.acl_id for change in changes if isinstance(change, AclDeleted)]


def _topic_value(topic: TopicImage) -> bytes:
    return encode_topic(topic.id, [partition.replicas for partition in topic.partitions])


def _create_partitions(topic: TopicImage, first: int, controller_epoch: int) -> Iterator[Op]:
    for index in range(first, len(topic.partitions)):
        yield Create(partition_path(topic.name, index), b"")
        yield Create(state_path(topic.name, index), encode_state(topic.partitions[index], controller_epoch))


def _delete_partitions(name: str, first: int, end: int) -> Iterator[Op]:
    for index in range(first, end):
        yield Delete(state_path(name, index))
        yield Delete(partition_path(name, index))

"""What a controller can change, as values: decisions return them, this module says what they do to the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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

BYTES_OF_A_PARTITION = 250
"""In a write: what is larger counts as several."""
WEIGHT_OF_A_CHANGE = 2
"""A partition that changes is in its own node and in the entry of `/changes`."""


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
            for index in range(len(topic.partitions)):
                yield Delete(state_path(topic.name, index))
                yield Delete(f"{partitions_path(topic.name)}/{index}")
            yield Delete(partitions_path(topic.name))
            yield Delete(topic_path(topic.name))
            yield Delete(topic_config_path(topic.name))
        case PartitionsAdded(topic, first):
            yield Put(topic_path(topic.name), _topic_value(topic))
            yield from _create_partitions(topic, first, controller_epoch)
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
            case TopicCreated(topic) | TopicDeleted(topic) | PartitionsAdded(topic):
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
        yield Create(f"{partitions_path(topic.name)}/{index}", b"")
        yield Create(state_path(topic.name, index), encode_state(topic.partitions[index], controller_epoch))


def in_writes(changes: Iterable[Change], most: int) -> Iterator[list[Change]]:
    """The changes cut into writes of about `most` partitions each, in order, each right by itself.

    A topic that is too large for one write is created with its first partitions and grows by the others.
    """
    write: list[Change] = []
    weight = 0
    for change in (part for whole in changes for part in _parts(whole, most)):
        cost = _weight(change)
        if write and weight + cost > most:
            yield write
            write, weight = [], 0
        write.append(change)
        weight += cost
    if write:
        yield write


def _parts(change: Change, most: int) -> Iterator[Change]:
    match change:
        case TopicCreated(topic) if len(topic.partitions) > most:
            yield TopicCreated(replace(topic, partitions=topic.partitions[:most]))
            yield from _growth(topic, most, most)
        case PartitionsAdded(topic, first) if len(topic.partitions) - first > most:
            yield from _growth(topic, first, most)
        case PartitionsChanged(name, partitions) if _weight(change) > most:
            rows = list(partitions.items())
            step = max(most // WEIGHT_OF_A_CHANGE, 1)
            for start in range(0, len(rows), step):
                yield PartitionsChanged(name, dict(rows[start : start + step]))
        case _:
            yield change


def _growth(topic: TopicImage, first: int, most: int) -> Iterator[Change]:
    for start in range(first, len(topic.partitions), most):
        yield PartitionsAdded(replace(topic, partitions=topic.partitions[: start + most]), start)


def _weight(change: Change) -> int:
    match change:
        case TopicCreated(topic) | TopicDeleted(topic):
            return len(topic.partitions) + 1
        case PartitionsAdded(topic, first):
            return len(topic.partitions) - first + 1
        case PartitionsChanged(_, partitions):
            return WEIGHT_OF_A_CHANGE * len(partitions)
        case AclCreated(acl):
            return 1 + len(encode_acl(acl)) // BYTES_OF_A_PARTITION
        case _:
            return 1

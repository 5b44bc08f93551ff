"""Reading parts of the metadata out of the store into pieces of an image."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from headrace.coordination.contract import Store, TreeNode
from headrace.metadata.image import NO_CONTROLLER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from headrace.metadata.layout import (
    BROKER_CONFIGS,
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DEFAULT_BROKER,
    GROUP_CONFIGS,
    NODE_VERSION,
    USERS,
    acl_path,
    broker_config_path,
    broker_path,
    decode_acl,
    decode_broker,
    decode_config,
    decode_json,
    decode_quotas,
    decode_state,
    decode_topic,
    decode_user,
    group_config_path,
    group_of_node,
    offline_path,
    quota_path,
    state_of,
    state_path,
    suspect_path,
    topic_config_path,
    topic_path,
    user_of_node,
    user_path,
)
from headrace.model.topics import TopicId
from headrace.security.acl import Acl
from headrace.security.quota import QuotaEntity, entity_of_text
from headrace.security.scram import ScramCredential


async def load_topics(store: Store, names: Sequence[str]) -> dict[str, TopicImage]:
    """The topics that exist, by name.

    Two reads: topics that are deleted or created again between them may be missing or mixed. The caller then finds
    a new entry in `/changes`, and loads again before anybody sees it.
    """
    paths = [path for name in names for path in (topic_path(name), topic_config_path(name))]
    nodes = await store.get_many(paths)
    found: list[tuple[str, TopicId, list[tuple[int, ...]], TreeNode]] = []
    for name, topic, config in zip(names, nodes[::2], nodes[1::2], strict=True):
        if topic is not None and config is not None:
            topic_id, replicas = decode_topic(topic)
            found.append((name, topic_id, replicas, config))
    states = iter(
        await store.get_many([state_path(name, n) for name, _, replicas, _ in found for n in range(len(replicas))])
    )
    topics = {}
    for name, topic_id, replicas, config in found:
        pairs = [(next(states), partition_replicas) for partition_replicas in replicas]
        partitions = tuple(decode_state(state, ids) for state, ids in pairs if state is not None)
        if len(partitions) == len(pairs):
            topics[name] = TopicImage(name, topic_id, partitions, decode_config(config))
    return topics


async def load_partitions(
    store: Store, wanted: Mapping[str, Iterable[int]], replicas: Mapping[str, Sequence[tuple[int, ...]]]
) -> dict[str, dict[int, PartitionImage]]:
    """The present states of single partitions, if they exist."""
    pairs = [(name, index) for name, indexes in wanted.items() for index in indexes if index < len(replicas[name])]
    nodes = await store.get_many([state_path(name, index) for name, index in pairs])
    states: dict[str, dict[int, PartitionImage]] = {}
    for (name, index), node in zip(pairs, nodes, strict=True):
        if node is not None:
            states.setdefault(name, {})[index] = decode_state(node, replicas[name][index])
    return states


def states_in(
    image: MetadataImage, entries: Iterable[Mapping[str, Any]], whole: Container[str]
) -> tuple[dict[str, dict[int, PartitionImage]], dict[str, dict[int, None]]]:
    """The latest states of partitions in entries of `/changes`, and the partitions whose states have to be read.

    Only for topics that are not reloaded as a whole; older versions wrote no states.
    """
    told: dict[str, dict[int, PartitionImage]] = {}
    unread: dict[str, dict[int, None]] = {}
    for entry in entries:
        states = entry.get("states", {})
        for name, indexes in entry.get("partitions", {}).items():
            if name in whole or name not in image.topics:
                continue
            known = image.topics[name].partitions
            of_topic, here, to_read = states.get(name, {}), told.setdefault(name, {}), unread.setdefault(name, {})
            for index in indexes:
                fields = of_topic.get(str(index))
                if fields is None:
                    to_read[index] = None
                elif index < len(known):
                    here[index] = state_of(fields, fields[NODE_VERSION], known[index].replicas)
    for name, indexes in unread.items():
        for index in indexes:
            told[name].pop(index, None)
    return {name: rows for name, rows in told.items() if rows}, {
        name: rows for name, rows in unread.items() if rows
    }


async def load_brokers(store: Store) -> dict[int, BrokerImage]:
    ids = sorted(int(name) for name in await store.children(BROKER_IDS))
    paths = [path for id in ids for path in (broker_path(id), suspect_path(id), offline_path(id))]
    nodes = await store.get_many(paths)
    return {
        broker_id: decode_broker(broker_id, node, suspect, offline)
        for broker_id, node, suspect, offline in zip(ids, nodes[::3], nodes[1::3], nodes[2::3], strict=True)
        if node is not None
    }


async def load_broker_config_names(store: Store) -> list[str]:
    return ["" if name == DEFAULT_BROKER else name for name in await store.children(BROKER_CONFIGS)]


async def load_broker_configs(store: Store, names: Sequence[str]) -> dict[str, dict[str, str]]:
    nodes = await store.get_many([broker_config_path(name) for name in names])
    return {name: decode_config(node) for name, node in zip(names, nodes, strict=True) if node}


async def load_group_config_names(store: Store) -> list[str]:
    return [group_of_node(name) for name in await store.children(GROUP_CONFIGS)]


async def load_group_configs(store: Store, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings of the groups that have some."""
    nodes = await store.get_many([group_config_path(name) for name in names])
    return {name: decode_config(node) for name, node in zip(names, nodes, strict=True) if node}


async def load_acls(store: Store, ids: Sequence[str]) -> dict[str, Acl]:
    """The access rules that exist, by id."""
    nodes = await store.get_many([acl_path(acl_id) for acl_id in ids])
    return {acl_id: decode_acl(node) for acl_id, node in zip(ids, nodes, strict=True) if node}


async def load_user_names(store: Store) -> list[str]:
    return [user_of_node(name) for name in await store.children(USERS)]


async def load_users(store: Store, names: Sequence[str]) -> dict[str, dict[str, ScramCredential]]:
    nodes = await store.get_many([user_path(name) for name in names])
    return {name: decode_user(node) for name, node in zip(names, nodes, strict=True) if node}


async def load_quotas(store: Store, texts: Sequence[str]) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of the entities that have some."""
    entities = [entity_of_text(text) for text in texts]
    nodes = await store.get_many([quota_path(entity) for entity in entities])
    return {entity: decode_quotas(node) for entity, node in zip(entities, nodes, strict=True) if node}


async def load_controller(store: Store) -> tuple[int, int]:
    """The controller's broker id and the controller epoch."""
    controller, epoch = await store.get_many([CONTROLLER, CONTROLLER_EPOCH])
    assert epoch is not None, "the store lost its controller epoch"
    broker_id = NO_CONTROLLER if controller is None else decode_json(controller)["brokerid"]
    return broker_id, int(epoch.value)

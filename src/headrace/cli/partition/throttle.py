"""How fast replicas are copied: Kafka's settings, set for the duration of a move and removed after it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headrace.cli.partition.planning import Move
from headrace.client.admin import ConfigResource, alter_configs, describe_configs
from headrace.client.cluster import Cluster
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.topics import TopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
ALL = "*"


Pairs = dict[tuple[str, str], list[str]]
"""The partition:broker pairs by topic and setting."""


async def limit(cluster: Cluster, moves: Sequence[Move], bytes_per_second: int) -> Pairs:
    """Limit the brokers that send or receive copies of these partitions. Returns the newly limited pairs."""
    added = await limit_topics(cluster, moves)
    await limit_brokers(cluster, {one for move in moves for one in (*move.before, *move.after)}, bytes_per_second)
    return added


async def limit_brokers(cluster: Cluster, brokers: Iterable[int], bytes_per_second: int) -> None:
    changes = [(name, ConfigOperation.SET, str(bytes_per_second)) for name in RATES]
    alive = (await cluster.metadata([])).brokers
    for broker in sorted(set(brokers) & set(alive)):
        await alter_configs(cluster, ConfigResource(ResourceType.BROKER, str(broker)), changes)


async def limit_topics(cluster: Cluster, moves: Sequence[Move]) -> Pairs:
    """Limit these moves in addition to others of the same topics. Returns what was added."""
    added: Pairs = {}
    for topic in dict.fromkeys(move.partition.topic for move in moves):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        before = await _values(cluster, resource)
        wanted = _pairs([move for move in moves if move.partition.topic == topic])
        changes: list[tuple[str, ConfigOperation, str | None]] = []
        for name, pairs in wanted.items():
            there = [pair.strip() for pair in before.get(name, "").split(",")]
            new = [] if ALL in there else [pair for pair in pairs if pair not in there]
            if new:
                changes.append((name, ConfigOperation.APPEND, ",".join(new)))
                added[topic, name] = new
        if changes:
            await alter_configs(cluster, resource, changes)
    return added


def _pairs(moves: Sequence[Move]) -> dict[str, list[str]]:
    """Which brokers send and which receive copies of one topic."""
    return {
        LEADERS: [f"{move.partition.partition}:{one}" for move in moves for one in move.before],
        FOLLOWERS: [f"{move.partition.partition}:{one}" for move in moves for one in move.adding],
    }


async def lift_pairs(cluster: Cluster, added: Pairs, moving: Collection[TopicPartition]) -> None:
    """Remove the pairs of one plan, but not those of partitions that are moving again. Other pairs stay."""
    alive = (await cluster.metadata()).topics
    for (topic, name), pairs in added.items():
        done = [one for one in pairs if TopicPartition(topic, int(one.partition(":")[0])) not in moving]
        if topic not in alive or not done:
            continue
        resource = ConfigResource(ResourceType.TOPIC, topic)
        await alter_configs(cluster, resource, [(name, ConfigOperation.SUBTRACT, ",".join(done))])
        if (await _values(cluster, resource)).get(name) == "":
            await alter_configs(cluster, resource, [(name, ConfigOperation.DELETE, None)])


async def lift(cluster: Cluster, topics: Iterable[str]) -> list[str]:
    """Remove the limits from all brokers and from these topics; returns the names of what was limited."""
    limited = await limits(cluster, topics)
    for resource, names in limited.values():
        await alter_configs(cluster, resource, [(name, ConfigOperation.DELETE, None) for name in names])
    return list(limited)


async def limits(cluster: Cluster, topics: Iterable[str]) -> dict[str, tuple[ConfigResource, list[str]]]:
    """The settings that limit brokers and these topics, by `broker 1` or `topic t`."""
    view = await cluster.metadata()
    found = {}
    for broker in view.brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        if names := await _set(cluster, resource, RATES, "broker"):
            found[f"broker {broker}"] = resource, names
    for topic in dict.fromkeys(topics):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        if topic in view.topics and (names := await _set(cluster, resource, (LEADERS, FOLLOWERS), "topic")):
            found[f"topic {topic}"] = resource, names
    return found


async def _values(cluster: Cluster, resource: ConfigResource) -> dict[str, str]:
    """The pairs of a topic by setting, for the settings that are set."""
    entries = await describe_configs(cluster, resource, (LEADERS, FOLLOWERS))
    return {entry.name: entry.value or "" for entry in entries if entry.source == "topic"}


async def _set(cluster: Cluster, resource: ConfigResource, names: Sequence[str], source: str) -> list[str]:
    return [entry.name for entry in await describe_configs(cluster, resource, names) if entry.source == source]

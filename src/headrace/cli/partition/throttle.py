"""How fast replicas are copied: Kafka's settings, set for the time of a move and taken away after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.cli.partition.planning import Move
from headrace.client.admin import ConfigResource, alter_configs, describe_configs
from headrace.client.cluster import Cluster
from headrace.model.config_resources import ConfigOperation, ResourceType

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


async def limit(cluster: Cluster, moves: Sequence[Move], bytes_per_second: int) -> None:
    """On every broker that sends or gets copies, for these partitions."""
    await limit_topics(cluster, moves)
    await limit_brokers(cluster, {one for move in moves for one in (*move.before, *move.after)}, bytes_per_second)


async def limit_brokers(cluster: Cluster, brokers: Iterable[int], bytes_per_second: int) -> None:
    changes = [(name, ConfigOperation.SET, str(bytes_per_second)) for name in RATES]
    alive = (await cluster.metadata([])).brokers
    for broker in sorted(set(brokers) & set(alive)):
        await alter_configs(cluster, ConfigResource(ResourceType.BROKER, str(broker)), changes)


async def limit_topics(cluster: Cluster, moves: Sequence[Move]) -> None:
    for topic in dict.fromkeys(move.partition.topic for move in moves):
        own = [move for move in moves if move.partition.topic == topic]
        sending = [f"{move.partition.partition}:{one}" for move in own for one in move.before]
        getting = [f"{move.partition.partition}:{one}" for move in own for one in move.adding]
        changes: list[tuple[str, ConfigOperation, str | None]] = [
            (name, ConfigOperation.SET, ",".join(pairs))
            for name, pairs in ((LEADERS, sending), (FOLLOWERS, getting))
            if pairs
        ]
        if changes:
            await alter_configs(cluster, ConfigResource(ResourceType.TOPIC, topic), changes)


async def lift(cluster: Cluster, topics: Iterable[str], brokers: bool = True) -> list[str]:
    """Take the limits away from all brokers and these topics; what was limited."""
    lifted = []
    for what, (resource, names) in (await limits(cluster, topics)).items():
        if brokers or resource.type is not ResourceType.BROKER:
            await alter_configs(cluster, resource, [(name, ConfigOperation.DELETE, None) for name in names])
            lifted.append(what)
    return lifted


async def limits(cluster: Cluster, topics: Iterable[str]) -> dict[str, tuple[ConfigResource, list[str]]]:
    """The settings that limit brokers and these topics, by `broker 1`, `topic t`."""
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


async def _set(cluster: Cluster, resource: ConfigResource, names: Sequence[str], source: str) -> list[str]:
    return [entry.name for entry in await describe_configs(cluster, resource, names) if entry.source == source]

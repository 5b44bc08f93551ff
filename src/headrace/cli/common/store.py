"""Which coordination store a cluster uses, as its brokers tell it."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.client.admin import ConfigResource, describe_configs
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.model.config_resources import ResourceType
from headrace.model.errors import KafkaError

EMBEDDED = "embedded (SQLite)"


async def zookeeper_setting(cluster: Cluster, brokers: Iterable[int]) -> str | None:
    """`zookeeper.connect` of the first broker that can be asked, empty if its store is the embedded one.

    None if no broker can be asked, or it is of another product and does not say.
    """
    for broker in brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        try:
            entries = await describe_configs(cluster, resource, ["zookeeper.connect"])
        except (ClientError, KafkaError):
            continue
        return (entries[0].value or "") if entries else None
    return None


def store_name(setting: str | None) -> str | None:
    """For people."""
    return None if setting is None else f"ZooKeeper at {setting}" if setting else EMBEDDED

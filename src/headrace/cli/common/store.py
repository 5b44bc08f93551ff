"""Which coordination store a cluster uses, as its brokers report it."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from headrace.client.admin import ConfigResource, describe_configs
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.model.config_resources import ResourceType
from headrace.model.errors import KafkaError

EMBEDDED = "embedded (SQLite)"
ZOOKEEPER_TIMEOUT_SECONDS = 3.0


async def zookeeper_setting(cluster: Cluster, brokers: Iterable[int]) -> str | None:
    """`zookeeper.connect` of the first broker that answers; empty if it uses the embedded store. None if no broker
    answers, or if it is another product and does not say.
    """
    for broker in brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        try:
            entries = await describe_configs(cluster, resource, ["zookeeper.connect"])
        except (ClientError, KafkaError):
            continue
        return (entries[0].value or "") if entries else None
    return None


def why_unreachable(server: str) -> str | None:
    """Why a ZooKeeper server (`host:port`) cannot be reached from here; None if it accepts connections."""
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ZOOKEEPER_TIMEOUT_SECONDS):
            return None
    except OSError as error:
        return str(error.strerror or error)


def store_name(setting: str | None) -> str | None:
    """The name of the store, for people."""
    return None if setting is None else f"ZooKeeper at {setting}" if setting else EMBEDDED

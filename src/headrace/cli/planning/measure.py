"""What a cluster that exists has and does: brokers, disks, topics, and how fast they are written.

The rate is how far the offsets of the partitions move, times what a record takes on disk: sizes alone would also
change when old segments are deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.admin import ConfigResource, describe_configs, describe_log_dirs
from headrace.client.cluster import Cluster
from headrace.client.groups import list_groups
from headrace.client.offsets import LATEST, list_offsets, offset_ranges
from headrace.client.view import NO_LEADER, ClusterView
from headrace.env.env import Clock
from headrace.model.config_resources import ResourceType
from headrace.model.topics import TopicPartition


class BrokerDisk(NamedTuple):
    total_bytes: int | None
    """None if the broker does not say."""
    free_bytes: int | None
    used_bytes: int
    """The bytes of its replicas."""


class MeasuredCluster(NamedTuple):
    disks: Mapping[int, BrokerDisk]
    """The disk of each broker."""
    topics: int
    partitions: int
    replicas: int
    replication: int
    """The replication factor of most partitions."""
    groups: int
    write_rate: float
    """Bytes per second, without replicas."""
    fastest_partition: float
    """Bytes per second."""
    retention_s: float | None
    """The retention time of the topic that takes the most space; None if it keeps everything."""


async def measure(cluster: Cluster, clock: Clock, seconds: float) -> MeasuredCluster:
    view = await cluster.metadata()
    topics = [topic for topic in view.topics.values() if not topic.internal]
    led = [
        TopicPartition(topic.name, one.number)
        for topic in topics
        for one in topic.partitions
        if one.leader != NO_LEADER and one.leader in view.brokers
    ]
    disks, sizes = await _disks(cluster, view)
    rates = await _rates(cluster, clock, led, sizes, seconds)
    replicas = [len(one.replicas) for topic in topics for one in topic.partitions]
    taken = Counter[str]()
    for partition in led:
        taken[partition.topic] += sizes.get(partition, 0)
    largest = next(iter(taken.most_common(1)), ("", 0))[0]
    return MeasuredCluster(
        disks,
        len(topics),
        len(replicas),
        sum(replicas),
        Counter(replicas).most_common(1)[0][0] if replicas else 1,
        len(await list_groups(cluster)),
        sum(rates.values()),
        max(rates.values(), default=0.0),
        await _retention_s(cluster, largest) if largest else None,
    )


async def _disks(cluster: Cluster, view: ClusterView) -> tuple[dict[int, BrokerDisk], dict[TopicPartition, int]]:
    """The disks of each broker, and the bytes of the largest replica of each partition."""
    disks: dict[int, BrokerDisk] = {}
    sizes: dict[TopicPartition, int] = {}
    for broker in view.brokers:
        directories = [one for one in await describe_log_dirs(cluster, broker) if not one.error_code]
        used = 0
        for topic in (topic for directory in directories for topic in directory.topics):
            for one in topic.partitions:
                name = TopicPartition(topic.name, one.partition_index)
                sizes[name] = max(sizes.get(name, 0), one.partition_size)
                used += one.partition_size
        known = all(one.total_bytes >= 0 for one in directories) and bool(directories)
        disks[broker] = BrokerDisk(
            sum(one.total_bytes for one in directories) if known else None,
            sum(one.usable_bytes for one in directories) if known else None,
            used,
        )
    return disks, sizes


async def _rates(
    cluster: Cluster,
    clock: Clock,
    partitions: list[TopicPartition],
    sizes: Mapping[TopicPartition, int],
    seconds: float,
) -> dict[TopicPartition, float]:
    ranges = await offset_ranges(cluster, partitions) if partitions else {}
    began = clock.monotonic()
    await clock.sleep(seconds)
    ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST)) if partitions else {}
    took = max(clock.monotonic() - began, 0.001)
    rates = {}
    for partition, (first, end) in ranges.items():
        bytes_per_record = sizes.get(partition, 0) / max(end - first, 1)
        rates[partition] = max(ends[partition].offset - end, 0) * bytes_per_record / took
    return rates


async def _retention_s(cluster: Cluster, topic: str) -> float | None:
    entries = await describe_configs(cluster, ConfigResource(ResourceType.TOPIC, topic), ["retention.ms"])
    value = next((entry.value for entry in entries if entry.name == "retention.ms"), None)
    return None if value is None or int(value) < 0 else int(value) / 1000

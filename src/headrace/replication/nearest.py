"""Which replica a consumer should read from, by its rack (KIP-392, R-CON-4)."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.metadata.image import BrokerImage
from headrace.replication.partition import Partition


def nearest_replica(
    partition: Partition, rack: str, offset: int, brokers: Mapping[int, BrokerImage]
) -> int | None:
    """An in-sync follower in the consumer's rack that has the offset; None if the leader is as good as any."""
    image, leadership = partition.image, partition.leadership
    if image is None or leadership is None:
        return None
    leader = brokers.get(image.leader)
    if leader is None or leader.rack == rack:
        return None
    for replica in image.isr:
        broker = brokers.get(replica)
        if broker is not None and broker.rack == rack and leadership.end_of(replica) >= offset:
            return replica
    return None

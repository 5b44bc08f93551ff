"""Which broker leads a partition that a client looked for here (KIP-951)."""

from __future__ import annotations

from typing import Protocol

from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.image import MetadataImage, TopicImage
from headrace.model.topics import TopicId
from headrace.wire.leader_hints import LeaderHint


class HintingBroker(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def metadata(self) -> ClusterMetadata: ...


def leader_elsewhere(
    broker: HintingBroker, listener: str, topic: bytes, index: int, *, by_id: bool
) -> LeaderHint | None:
    """None if no other broker leads it, or if its leader cannot be reached through the client's listener."""
    image = broker.metadata.image
    found = _find(image, topic, by_id)
    if found is None or not 0 <= index < len(found.partitions):
        return None
    partition = found.partitions[index]
    leader = image.brokers.get(partition.leader)
    if leader is None or leader.id == broker.id:
        return None
    endpoint = leader.endpoint(listener)
    if endpoint is None:
        return None
    return LeaderHint(leader.id, partition.leader_epoch, endpoint.host, endpoint.port, leader.rack)


def _find(image: MetadataImage, topic: bytes, by_id: bool) -> TopicImage | None:
    if by_id:
        return image.topics_by_id.get(TopicId(topic))
    return image.topics.get(topic.decode(errors="replace"))

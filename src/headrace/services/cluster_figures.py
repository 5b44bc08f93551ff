"""The cluster as a whole, for `/metrics`: told by the controller alone, 0 elsewhere, so that sums are right.

And how this broker was set up, where all should agree: `headrace_settings` has the same digest on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headrace.config.broker_config import BrokerConfig
from headrace.config.differing import settings_digest
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage
from headrace.metadata.stores import zookeeper_address
from headrace.metrics.exposition import Family, gauge

CONTROLLER = "kafka_controller_kafkacontroller"


class ClusterFigures:
    def __init__(self, metadata: ClusterMetadata, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._broker_id = config.node_id
        address = zookeeper_address(config)
        self._zookeepers = len(address.servers) if address is not None else 0
        self._digest = settings_digest(config)

    def families(self) -> Iterator[Family]:
        image = self._metadata.image
        active = image.controller_id == self._broker_id
        yield gauge(f"{CONTROLLER}_activecontrollercount", "1 on the controller, 0 elsewhere.", int(active))
        yield from controller_families(image if active else MetadataImage(image.cluster_id))
        yield gauge(
            "headrace_zookeeper_servers",
            "ZooKeeper servers that this broker was given; 0 with the embedded store.",
            self._zookeepers,
        )
        labels = (("digest", self._digest),)
        help_text = "1; the digest is the same on brokers whose settings agree."
        yield Family("headrace_settings", "gauge", help_text, [(labels, 1)])


def controller_families(image: MetadataImage) -> Iterator[Family]:
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
    hosts = {broker.host for broker in image.brokers.values()}
    racks = {broker.rack for broker in image.brokers.values()}
    figures: tuple[tuple[str, str, int], ...] = (
        (
            f"{CONTROLLER}_offlinepartitionscount",
            "Partitions without a leader; on the controller.",
            sum(partition.leader == NO_LEADER for partition in partitions),
        ),
        (
            f"{CONTROLLER}_preferredreplicaimbalancecount",
            "Partitions not led by their first replica; on the controller.",
            sum(partition.leader not in (NO_LEADER, *partition.replicas[:1]) for partition in partitions),
        ),
        (f"{CONTROLLER}_activebrokercount", "Brokers; on the controller.", len(image.brokers)),
        (f"{CONTROLLER}_globaltopiccount", "Topics; on the controller.", len(image.topics)),
        (f"{CONTROLLER}_globalpartitioncount", "Partitions; on the controller.", len(partitions)),
        (
            "headrace_partitions_on_one_host",
            "Partitions whose replicas are all on one host, where there are several; on the controller.",
            together(image, partitions, lambda broker: broker.host) if len(hosts) > 1 else 0,
        ),
        (
            "headrace_partitions_in_one_rack",
            "Partitions whose replicas are all in one rack, where there are several; on the controller.",
            together(image, partitions, lambda broker: broker.rack) if len(racks) > 1 else 0,
        ),
    )
    for name, help_text, value in figures:
        yield gauge(name, help_text, value)


def together(
    image: MetadataImage, partitions: Iterable[PartitionImage], place: Callable[[BrokerImage], str | None]
) -> int:
    """The number of partitions with several replicas, and all figures that are known in one place."""
    places = {id: place(broker) for id, broker in image.brokers.items()}
    return sum(
        len(partition.replicas) > 1
        and len({places[replica] for replica in partition.replicas if replica in places}) == 1
        for partition in partitions
    )

"""What the controller tells of the cluster as a whole."""

from __future__ import annotations

from dataclasses import replace

from headrace.config.broker_config import BrokerConfig
from headrace.config.differing import settings_digest
from headrace.metadata.image import NO_LEADER, BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from headrace.model.topics import NO_TOPIC_ID
from headrace.services.cluster_figures import CONTROLLER, controller_families


def broker(id: int, host: str, rack: str | None = None) -> BrokerImage:
    return BrokerImage(id, 1, (Endpoint("PLAINTEXT", host, 9092, "PLAINTEXT"),), rack)


def partition(leader: int, *replicas: int) -> PartitionImage:
    return PartitionImage(replicas, leader, 0, replicas)


def image(*brokers: BrokerImage) -> MetadataImage:
    partitions = (partition(1, 1, 2), partition(2, 1, 2), partition(NO_LEADER, 1, 3), partition(1, 1))
    topic = TopicImage("t", NO_TOPIC_ID, partitions)
    return replace(MetadataImage("c"), brokers={one.id: one for one in brokers}, topics={"t": topic})


def figures(image: MetadataImage) -> dict[str, float]:
    return {family.name: family.samples[0][1] for family in controller_families(image)}


def test_a_cluster_over_hosts_and_racks() -> None:
    found = figures(image(broker(1, "a", "r"), broker(2, "a", "s"), broker(3, "b", "r")))
    assert found[f"{CONTROLLER}_offlinepartitionscount"] == 1
    assert found[f"{CONTROLLER}_preferredreplicaimbalancecount"] == 1
    assert found[f"{CONTROLLER}_activebrokercount"] == 3
    assert found[f"{CONTROLLER}_globaltopiccount"] == 1
    assert found[f"{CONTROLLER}_globalpartitioncount"] == 4
    assert found["headrace_partitions_on_one_host"] == 2
    assert found["headrace_partitions_in_one_rack"] == 1


def test_one_host_is_nobodys_fault() -> None:
    found = figures(image(broker(1, "a"), broker(2, "a"), broker(3, "a")))
    assert (found["headrace_partitions_on_one_host"], found["headrace_partitions_in_one_rack"]) == (0, 0)
    assert set(figures(MetadataImage("c")).values()) == {0}


def test_settings_that_agree_have_one_digest() -> None:
    given = {"node.id": "1", "log.dirs": "a"}, {"node.id": "2", "log.dirs": "b"}, {"num.partitions": "7"}
    first, same, other = (settings_digest(BrokerConfig.build(flags=flags)) for flags in given)
    assert first == same != other

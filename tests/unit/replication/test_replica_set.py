"""The roles of a broker's partitions, by images whose parts were read one after the other."""

from __future__ import annotations

from pathlib import Path

from headrace.env.real import real_env
from headrace.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from headrace.model.topics import TopicId, TopicPartition
from headrace.replication.host import PartitionHost
from headrace.replication.replica_set import ReplicaSet
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directories import LogDirectories

TOPIC_ID = TopicId(bytes(range(16)))
T0 = TopicPartition("t", 0)


def image(registration: int, partition: PartitionImage) -> MetadataImage:
    topic = TopicImage("t", TOPIC_ID, (partition,))
    brokers = {1: BrokerImage(1, registration, ()), 2: BrokerImage(2, 5, ())}
    return MetadataImage("c", brokers=brokers, topics={"t": topic}, topics_by_id={TOPIC_ID: topic})


async def test_an_election_that_is_read_before_the_own_registration_counts_once_that_is_read(
    tmp_path: Path,
) -> None:
    """The broker had withdrawn, registered again, and was elected at once (seed 991533)."""
    env = real_env()
    directories = LogDirectories(env, [str(tmp_path)], 1)
    directories.open("c", lambda partition, topic_id: LogConfig())
    replicas = ReplicaSet(PartitionHost(1, env.clock), env, directories, lambda topic, image: LogConfig())
    elected = PartitionImage((1, 2), 1, 1, (1,), 3, 7)
    before = image(3, PartitionImage((1, 2), 1, 0, (1, 2), 2, 3))
    await replicas._apply(MetadataImage("c"), before)
    partition = replicas.by_name[b"t"][0]
    assert partition.is_leader
    half = image(3, elected)
    await replicas._apply(before, half)
    assert not partition.is_leader, "it may be a registration of an earlier process"
    whole = MetadataImage(
        "c", brokers=image(7, elected).brokers, topics=half.topics, topics_by_id=half.topics_by_id
    )
    await replicas._apply(half, whole)
    assert (partition.is_leader, partition.leader_epoch) == (True, 1)

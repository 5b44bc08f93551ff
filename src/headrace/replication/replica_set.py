"""The partitions of this broker, kept in step with the metadata image (architecture D5): new image in, diff out.

The hot handlers look partitions up by the raw bytes of a topic's name or id, as they stand on the wire. Files
are made and removed by a thread; the loop only ever sees partitions that are ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

from headrace.env import Env
from headrace.metadata.image import MetadataImage, PartitionImage, TopicImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId, TopicPartition
from headrace.replication.flushing import Flusher
from headrace.replication.partition import Partition
from headrace.replication.waiters import WakeList
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directories import LogDirectories

log = logging.getLogger(__name__)

ConfigOf = Callable[[TopicImage, MetadataImage], LogConfig]
Placed = tuple[TopicPartition, TopicImage]
Listener = Callable[[MetadataImage, MetadataImage], None]


class ReplicaSet:
    def __init__(self, broker_id: int, env: Env, directories: LogDirectories, config_of: ConfigOf) -> None:
        self._broker_id = broker_id
        self._env = env
        self._directories = directories
        self._config_of = config_of
        self._wakes = WakeList(env.clock)
        self.by_name: dict[bytes, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self._image = MetadataImage(cluster_id="")
        """What the partitions agree with."""
        self._target = self._image
        self._reconciling: asyncio.Task[None] | None = None
        self._listeners: list[Listener] = []

    # -- keeping in step

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(old, new)` each time the partitions have come to agree with a new image."""
        self._listeners.append(listener)

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Told of a new image: agree with it soon. `settled` waits for that."""
        self._target = new
        if self._reconciling is None or self._reconciling.done():
            self._reconciling = asyncio.get_running_loop().create_task(self._reconcile())

    async def settled(self) -> None:
        """Return once the partitions agree with every image told of before this call."""
        target = self._target
        while self._image is not target and self._reconciling is not None and not self._reconciling.done():
            await asyncio.shield(self._reconciling)

    async def _reconcile(self) -> None:
        while self._image is not self._target:
            target = self._target
            before = self._image
            await self._apply(before, target)
            self._image = target
            for listener in self._listeners:
                listener(before, target)

    def remove_strays(self, image: MetadataImage) -> None:
        """Delete logs whose topics were deleted, or moved away, while this broker was down."""
        for topic_partition in self._directories.partitions():
            partition = image.partition(topic_partition)
            if partition is None or not self._holds(partition):
                log.info("Dropped %s: its topic was deleted while this broker was down", topic_partition)
                self._directories.delete_log(topic_partition)

    async def _apply(self, old: MetadataImage, new: MetadataImage) -> None:
        changed = [topic for name, topic in new.topics.items() if old.topics.get(name) is not topic]
        self._drop_all(self._departed(old, new))
        missing = list(self._missing(changed))
        if missing:
            logs = await self._env.run_blocking(lambda: [self._open_log(placed, new) for placed in missing])
            for (topic_partition, topic), partition_log in zip(missing, logs, strict=True):
                self._install(Partition(topic_partition, topic.id, partition_log, self._wakes))
        for topic in changed:
            self._assume_roles(topic)
        self._update_configs(old, new, changed)

    def _departed(self, old: MetadataImage, new: MetadataImage) -> list[Partition]:
        """Partitions of topics that are gone, were made anew, or moved away."""
        departed = []
        for name, topic in old.topics.items():
            current = new.topics.get(name)
            if current is topic:
                continue
            for partition in self.by_id.get(topic.id, {}).values():
                image = new.partition(partition.topic_partition)
                if current is None or current.id != topic.id or image is None or not self._holds(image):
                    departed.append(partition)
        return departed

    def _missing(self, topics: Iterable[TopicImage]) -> Iterator[Placed]:
        for topic in topics:
            local = self.by_id.get(topic.id, {})
            for index, partition in enumerate(topic.partitions):
                if self._holds(partition) and index not in local:
                    yield TopicPartition(topic.name, index), topic

    def _holds(self, partition: PartitionImage) -> bool:
        return self._broker_id in partition.replicas

    def _open_log(self, placed: Placed, image: MetadataImage) -> Log:
        topic_partition, topic = placed
        return self._directories.open_log(topic_partition, topic.id, self._config_of(topic, image))

    def _install(self, partition: Partition) -> None:
        name, index = partition.topic_partition
        self.by_name.setdefault(name.encode(), {})[index] = partition
        self.by_id.setdefault(partition.topic_id, {})[index] = partition
        self._set_flush_policy(partition)

    def _set_flush_policy(self, partition: Partition) -> None:
        config = partition.log.config
        if partition.flusher is not None or Flusher.is_needed(config):
            needed = Flusher.is_needed(config)
            partition.set_flusher(Flusher(self._env, partition, config) if needed else None)

    def _drop_all(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            self._uninstall(partition)
            partition.set_flusher(None)
            partition.resign()
            self._directories.delete_log(partition.topic_partition)
            log.info("Dropped %s: its topic is gone or it moved away", partition.topic_partition)

    def _uninstall(self, partition: Partition) -> None:
        name, index = partition.topic_partition
        for lookup, key in ((self.by_name, name.encode()), (self.by_id, partition.topic_id)):
            del lookup[key][index]
            if not lookup[key]:
                del lookup[key]

    def _assume_roles(self, topic: TopicImage) -> None:
        for index, partition in self.by_id.get(topic.id, {}).items():
            image = topic.partitions[index]
            if image.leader == self._broker_id:
                partition.become_leader(image)
            elif partition.is_leader:
                partition.resign()

    def _update_configs(self, old: MetadataImage, new: MetadataImage, changed: list[TopicImage]) -> None:
        defaults_changed = old.broker_configs is not new.broker_configs
        for topic in new.topics.values() if defaults_changed else changed:
            partitions = self.by_id.get(topic.id)
            if partitions:
                config = self._config_of(topic, new)
                for partition in partitions.values():
                    if partition.log.config is not config:
                        partition.log.update_config(config)
                        self._set_flush_policy(partition)

    # -- looking up

    def leader(self, topic_partition: TopicPartition, leader_epoch: int = -1) -> Partition:
        """The partition, which this broker must lead, in the epoch that the client believes in (-1: any)."""
        name = topic_partition.topic.encode()
        partition = self.by_name.get(name, {}).get(topic_partition.partition)
        if partition is None or not partition.is_leader:
            raise self.why_not_leader(name, topic_partition.partition, by_id=False)
        if leader_epoch >= 0:
            partition.check_epoch(leader_epoch)
        return partition

    def why_not_leader(self, topic: bytes, index: int, *, by_id: bool) -> KafkaError:
        """What to tell a client that came here for a partition we do not lead."""
        if by_id:
            known = self._target.topics_by_id.get(TopicId(topic))
        else:
            known = self._target.topics.get(topic.decode(errors="replace"))
        if known is None and by_id:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if known is None or not 0 <= index < len(known.partitions):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def all(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

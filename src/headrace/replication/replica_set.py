"""The partitions of this broker, consistent with the metadata image (architecture D5): new image in, diff out.

The hot handlers look partitions up by the raw bytes of a topic's name or id, as they are on the wire. Files are
created and removed by a thread; the loop only ever sees partitions that are ready. A partition whose data
directory failed, or whose log could not be created, is offline: it is no longer looked up, and clients get the
reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

from headrace.env import Env
from headrace.metadata.cluster import ImageListener
from headrace.metadata.image import MetadataImage, PartitionImage, TopicImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicId, TopicPartition, topic_id_text
from headrace.replication.fetchers import Fetchers
from headrace.replication.flushing import Flusher
from headrace.replication.host import PartitionHost
from headrace.replication.lost_logs import LostLogs, find_lost
from headrace.replication.partition import Partition
from headrace.replication.sync_rounds import SyncRounds
from headrace.replication.throttle import Side
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directories import LogDirectories
from headrace.storage.log_directory import LogDirectory

log = logging.getLogger(__name__)

TopicLogConfig = Callable[[TopicImage, MetadataImage], LogConfig]
Placed = tuple[TopicPartition, TopicImage]


class ReplicaSet:
    def __init__(
        self,
        host: PartitionHost,
        env: Env,
        directories: LogDirectories,
        config_of: TopicLogConfig,
        fetchers: Fetchers | None = None,
    ) -> None:
        """Without fetchers no partition is copied from other brokers."""
        self._host = host
        self.broker_id = host.broker_id
        self.in_sync_changes = host.in_sync_changes
        self._env = env
        self._directories = directories
        self._config_of = config_of
        self._fetchers = fetchers
        self._high_watermarks: dict[TopicPartition, int] = {}
        """The high watermarks when the broker stopped; each is used once."""
        self._untouched: dict[TopicPartition, None] = {}
        """Logs as they were found at the start, until they have a role."""
        self._stale: dict[Partition, None] = {}
        """Partitions with outdated logs that cannot be copied again for lack of space: they do not follow."""
        self._away_ms = 0
        """How long ago this broker last recorded the state of its logs."""
        self._sync_rounds = SyncRounds(env)
        self.sending_limit: Side | None = None
        """How fast this broker sends to followers that are not in sync."""
        self.by_name: dict[bytes, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self.offline: dict[TopicPartition, TopicId] = {}
        """Partitions of this broker that are offline; its log says why."""
        self._image = MetadataImage(cluster_id="")
        """The image with which the partitions agree."""
        self._target = self._image
        self._reconciling: asyncio.Task[None] | None = None
        self._listeners: list[ImageListener] = []
        self._elsewhere: set[tuple[TopicId, int]] = set()
        """Partitions whose logs may be in a directory that is missing: they are not created again."""
        self._moved_away: set[tuple[TopicId, int]] = set()
        """Partitions that were offline here until other brokers took them: they are created if they come back."""
        self._lost: LostLogs = {}
        """Where partitions continue whose logs are lost, so that no offset is used again."""
        self._retry = False

    # -- following the image

    def subscribe(self, listener: ImageListener) -> None:
        """Call `listener(old, new)` each time the partitions agree with a new image."""
        self._listeners.append(listener)

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Adopt a new image soon. `settled` waits for that."""
        self._target = new
        if self._reconciling is None or self._reconciling.done():
            self._reconciling = self._env.background.start("Following the cluster's metadata", self._reconcile())

    async def settled(self) -> None:
        """Return once the partitions agree with every image announced before this call."""
        target = self._target
        while self._image is not target and self._reconciling is not None and not self._reconciling.done():
            await asyncio.shield(self._reconciling)

    async def _reconcile(self) -> None:
        while self._image is not self._target or self._retry:
            target = self._target
            before = self._image
            self._retry = False
            await self._apply(before, target)
            self._image = target
            for listener in self._listeners:
                listener(before, target)

    def remove_strays(self, image: MetadataImage) -> None:
        """Set aside logs whose topics were deleted, or moved away, while this broker was down.

        They are not deleted: the metadata may be an older copy that knows less than the logs.
        """

        def why_stray(held: Log) -> str | None:
            topic, partition = image.topics.get(held.partition.topic), image.partition(held.partition)
            if topic is None or partition is None:
                return "the cluster's metadata has no such partition"
            if not self._holds(partition):
                return "by the cluster's metadata this broker holds no copy of the partition"
            if held.topic_id in (NO_TOPIC_ID, topic.id):
                return None
            wanted, found = topic_id_text(topic.id), topic_id_text(held.topic_id)
            return (
                f"the topic of this name has the id {wanted} in the cluster, by partition.metadata it is {found}"
            )

        if count := self._directories.set_strays_aside(why_stray):
            log.warning(
                "%d logs were set aside, and are deleted after headrace.stray.retention.ms. If their topics "
                "were deleted while this broker was down, that is all. If the metadata (cluster.db, or what "
                "ZooKeeper holds) is an older copy, stop the broker, put the newer one back, and take the "
                "ends off the names of these directories; likewise "
                "if a partition.metadata is wrong, once it is right",
                count,
            )
        self._directories.check_no_log_twice()
        self._lost = {} if self._directories.any_missing else find_lost(image, self.broker_id, self._directories)
        if self._directories.any_missing:
            for topic in image.topics.values():
                self._elsewhere.update((topic.id, index) for index in range(len(topic.partitions)))

    async def _apply(self, old: MetadataImage, new: MetadataImage) -> None:
        changed = [topic for name, topic in new.topics.items() if old.topics.get(name) is not topic]
        self._drop_all(self._departed(old, new), new)
        again = [new.topics_by_id[topic_id] for topic_id in self._offline_ids() if topic_id in new.topics_by_id]
        self._forget_offline(new)
        changed = list({topic.id: topic for topic in [*changed, *again]}.values())
        missing = list(self._missing(changed))
        if missing:
            logs = await self._env.run_blocking(lambda: [self._try_to_open(placed, new) for placed in missing])
            for (topic_partition, topic), partition_log in zip(missing, logs, strict=True):
                if partition_log is None:
                    self.offline[topic_partition] = topic.id
                elif partition_log.failure is not None:  # already; the others in its directory may be gone too
                    self.offline[topic_partition] = topic.id
                    self._elsewhere.add((topic.id, topic_partition.partition))
                else:
                    self.offline.pop(topic_partition, None)
                    self._install(self._new_partition(topic_partition, topic.id, partition_log))
        for topic in changed:
            self._assume_roles(topic, new)
        if old.brokers.get(self.broker_id) is not new.brokers.get(self.broker_id):
            self._lead_after_all(new)
        self._update_configs(old, new, changed)

    def _new_partition(self, name: TopicPartition, topic_id: TopicId, partition_log: Log) -> Partition:
        """A partition with its last known high watermark, up to the end of what counts as written here."""
        partition = Partition(name, topic_id, partition_log, self._host)
        self._set_flush_policy(partition)
        known = self._high_watermarks.pop(name, 0)
        partition.high_watermark = max(min(known, partition.synced_end), partition_log.start_offset)
        return partition

    def load_high_watermarks(self) -> None:
        """Read the high watermarks. Blocking, once at start."""
        for directory in self._directories.online:
            self._high_watermarks.update(directory.read_high_watermarks())
            self._untouched.update(dict.fromkeys(directory.logs))
            self._away_ms = max(self._away_ms, directory.away_ms())

    def save_high_watermarks(self) -> None:
        """Write the high watermarks. Blocking."""
        marks = {partition.topic_partition: partition.high_watermark for partition in self.all()}
        for directory in self._directories.online:
            directory.write_high_watermarks({name: marks[name] for name in list(directory.logs) if name in marks})

    def _departed(self, old: MetadataImage, new: MetadataImage) -> list[Partition]:
        """Partitions of topics that were deleted, created again, or moved away."""
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
        return self.broker_id in partition.replicas

    def _forget_offline(self, image: MetadataImage) -> None:
        """Forget offline partitions that moved away: one that returns may be created on another disk."""
        gone = [(name, id) for name, id in self.offline.items() if not self._is_ours(id, name, image)]
        for name, topic_id in gone:
            del self.offline[name]
            self._elsewhere.discard((topic_id, name.partition))
            self._moved_away.add((topic_id, name.partition))

    def _is_ours(self, topic_id: TopicId, name: TopicPartition, image: MetadataImage) -> bool:
        topic = image.topics_by_id.get(topic_id)
        return (
            topic is not None
            and name.partition < len(topic.partitions)
            and self._holds(topic.partitions[name.partition])
        )

    def _try_to_open(self, placed: Placed, image: MetadataImage) -> Log | None:
        """The log. None if there is no space for it, or if it may be in a missing directory. In a thread."""
        topic_partition, topic = placed
        key = topic.id, topic_partition.partition
        is_elsewhere = key in self._elsewhere or (
            key not in self._moved_away and self._directories.lies_in_a_failed_one(topic_partition, topic.id)
        )
        if is_elsewhere and not self._directories.holds(topic_partition):
            return None
        try:
            start_offset = self._lost.pop(key, 0)
            config = self._config_of(topic, image)
            return self._directories.open_log(topic_partition, topic.id, config, start_offset)
        except (OSError, KafkaError) as error:
            log.error("%s is offline: its log cannot be created: %s", topic_partition, error)
            return None

    def _offline_ids(self) -> list[TopicId]:
        return list(dict.fromkeys(self.offline.values()))

    def retry_offline(self) -> None:
        """Try again to open logs for which there was no space."""
        if self.offline and self._directories.online:
            self._retry = True
            self.follow(self._image, self._target)
        for partition in list(self._stale):
            is_here = self.by_id.get(partition.topic_id, {}).get(partition.topic_partition.partition) is partition
            if not is_here or partition.is_leader or partition.image is None:
                del self._stale[partition]
            else:
                self._follow_leader(partition, partition.image)

    def take_offline(self, failed: LogDirectory) -> None:
        """A data directory failed: its partitions are no longer available, the others continue."""
        gone = [partition for partition in self.all() if partition.topic_partition in failed.logs]
        for partition in gone:
            self._uninstall(partition)
            self.offline[partition.topic_partition] = partition.topic_id
            self._elsewhere.add((partition.topic_id, partition.topic_partition.partition))
            self._retire(partition)
        for listener in self._listeners:
            listener(self._image, self._image)
        if gone:
            log.error("Partitions offline with the data directory %s: %d", failed.path, len(gone))

    def _install(self, partition: Partition) -> None:
        name, index = partition.topic_partition
        self.by_name.setdefault(name.encode(), {})[index] = partition
        self.by_id.setdefault(partition.topic_id, {})[index] = partition

    def _set_flush_policy(self, partition: Partition) -> None:
        config = partition.log.config
        if partition.flusher is not None or Flusher.is_needed(config):
            needed = Flusher.is_needed(config)
            partition.set_flusher(Flusher(self._env, self._sync_rounds, partition, config) if needed else None)

    def _drop_all(self, partitions: list[Partition], image: MetadataImage) -> None:
        """Remove partitions. Logs of those that moved away are kept for a while: until now they were a replica."""
        for partition in partitions:
            self._uninstall(partition)
            self._retire(partition)
            topic = image.topics_by_id.get(partition.topic_id)
            # A large topic is deleted in parts: its last partitions are removed first.
            if topic is not None and partition.topic_partition.partition < len(topic.partitions):
                self._directories.set_moved_aside(partition.topic_partition)
            else:
                self._directories.delete_log(partition.topic_partition)
                log.info("Dropped %s: its topic is gone", partition.topic_partition)

    def _retire(self, partition: Partition) -> None:
        """Retire a partition. The order matters: without its flusher a leader would acknowledge unsynced
        records."""
        if self._fetchers is not None:
            self._fetchers.leave(partition)
        partition.resign()
        partition.set_flusher(None)

    def _uninstall(self, partition: Partition) -> None:
        name, index = partition.topic_partition
        for lookup, key in ((self.by_name, name.encode()), (self.by_id, partition.topic_id)):
            del lookup[key][index]
            if not lookup[key]:
                del lookup[key]

    def _assume_roles(self, topic: TopicImage, image: MetadataImage) -> None:
        for index, partition in self.by_id.get(topic.id, {}).items():
            state = topic.partitions[index]
            if state is partition.image or _is_older(state, partition.image):
                continue
            if self._leads(state, image):
                self._lead(partition, state)
            else:
                self._follow_leader(partition, state)

    def _lead_after_all(self, image: MetadataImage) -> None:
        """Lead where this broker was elected after it had registered again, and read of the election first: until
        it knew of its new registration it had no role there."""
        for topic in image.topics.values():
            for index, partition in self.by_id.get(topic.id, {}).items():
                state = topic.partitions[index]
                if state is partition.image and not partition.is_leader and self._leads(state, image):
                    self._lead(partition, state)

    def _lead(self, partition: Partition, state: PartitionImage) -> None:
        if self._fetchers is not None:
            self._fetchers.leave(partition)
        self._untouched.pop(partition.topic_partition, None)
        partition.become_leader(state)

    def _leads(self, state: PartitionImage, image: MetadataImage) -> bool:
        """Whether this broker leads: not if it was elected before it restarted, when it waits for a new epoch."""
        if state.leader != self.broker_id:
            return False
        local = image.brokers.get(self.broker_id)
        return state.replicas == (self.broker_id,) or (
            local is not None and local.epoch == state.leader_incarnation
        )

    def _forget_if_stale(self, partition: Partition, state: PartitionImage) -> bool:
        """Once after a start, discard a compacted log that was offline for too long.

        It may hold values whose tombstones are gone. The leader has removed both, and nothing will ever delete
        these values here: the log is copied again. A member of the in-sync set, or an eligible replica, keeps its
        log, which may be needed. Returns False if it should be discarded and cannot for lack of space: then the
        partition must not follow, and it is tried again.
        """
        if partition.topic_partition not in self._untouched or not partition.follows:
            return True
        config = partition.log.config
        is_needed = self.broker_id in state.isr or self.broker_id in state.elr
        if config.compacted and not is_needed and self._away_ms > config.delete_retention_ms:
            log.warning(
                (
                    "%s is being copied again from its leader: this broker was away for longer than "
                    "delete.retention.ms"
                ),
                partition.topic_partition,
            )
            try:
                partition.restart_at(0)
            except KafkaError as error:
                log.error(
                    "%s cannot follow its leader until it can be copied: %s", partition.topic_partition, error
                )
                return False
        del self._untouched[partition.topic_partition]
        return True

    def _follow_leader(self, partition: Partition, state: PartitionImage) -> None:
        same_leader = partition.follows and partition.leader_epoch == state.leader_epoch
        partition.become_follower(state)
        if self._forget_if_stale(partition, state):
            self._stale.pop(partition, None)
        else:
            self._stale[partition] = None
            partition.resign()
        if self._fetchers is not None and not same_leader:
            if partition.follows:
                self._fetchers.follow(partition)
            else:
                self._fetchers.leave(partition)

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
                        partition.config_changed()

    @property
    def image(self) -> MetadataImage:
        """The image with which the partitions agree."""
        return self._image

    # -- looking up

    def leader(self, topic_partition: TopicPartition, leader_epoch: int = -1) -> Partition:
        """The partition, which this broker must lead, in the epoch that the client believes in (-1: any)."""
        name = topic_partition.topic.encode()
        partition = self.by_name.get(name, {}).get(topic_partition.partition)
        if partition is None or not partition.is_leader:
            raise self.why_not_leader(name, topic_partition.partition, by_id=False)
        if leader_epoch != -1:
            partition.check_epoch(leader_epoch)
        return partition

    @property
    def follows_any(self) -> bool:
        return self._fetchers is not None and self._fetchers.busy

    def stop_following(self) -> None:
        if self._fetchers is not None:
            self._fetchers.stop()

    @property
    def doubted_leaders(self) -> set[int]:
        """Leaders to which clients should not be sent: they had better wait for the next ones."""
        return self._fetchers.doubted if self._fetchers is not None else set()

    def why_not_leader(self, topic: bytes, index: int, *, by_id: bool) -> KafkaError:
        """The error for a client that came here for a partition that this broker does not lead."""
        if by_id:
            known = self._target.topics_by_id.get(TopicId(topic))
        else:
            known = self._target.topics.get(topic.decode(errors="replace"))
        if known is None and by_id:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if known is None or not 0 <= index < len(known.partitions):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if TopicPartition(known.name, index) in self.offline:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The data directory of this partition is offline")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def for_follower(self) -> ReplicaSet:
        """The partitions for a client that reads as a follower. Behind a gate only brokers may."""
        return self

    def all(self) -> Iterator[Partition]:
        """All partitions; also in a thread, while the loop adds and removes some."""
        for partitions in list(self.by_name.values()):
            yield from list(partitions.values())


def _is_older(state: PartitionImage, known: PartitionImage | None) -> bool:
    """Whether the leader got a later state from the controller itself."""
    return (
        known is not None
        and state.leader_epoch == known.leader_epoch
        and state.partition_epoch < known.partition_epoch
    )

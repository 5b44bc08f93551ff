"""A broker whose disk is full steps aside where others can do its work, until there is space again (R-LOG-8).

The cluster is told that its replicas are offline, so that others lead, and nobody waits for it. Otherwise a
leader would refuse writers until somebody makes space, and `acks=all` would wait for a follower for
`replica.lag.time.max.ms`. Where no other replica is in sync it stays: readers are served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from headrace.env import Env
from headrace.metadata.image import MetadataImage
from headrace.model.topics import TopicId
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.storage.log_directories import LogDirectories
from headrace.storage.log_directory import LogDirectory

ROOM_BYTES = 64 * 1024 * 1024
ROOM_SHARE = 20
"""As much free space, or this part of a smaller disk, ends it: a little would be used up at once."""
HOLD_SECONDS = 10.0
"""At most, at random: two full brokers that step aside for each other at the same moment must not do it again."""

Held = frozenset[tuple[TopicId, int]]

logger = logging.getLogger(__name__)


class FullDirectories:
    def __init__(
        self, env: Env, directories: LogDirectories, replicas: ReplicaSet, image: Callable[[], MetadataImage]
    ) -> None:
        self._env = env
        self._directories = directories
        self._replicas = replicas
        self._image = image
        self._hold_until = 0.0
        self.given_up: Held = frozenset()
        """The partitions that are left to others."""

    async def look(self) -> None:
        """Something may have changed."""
        for directory in self._directories.online:
            if directory.is_full and await self._env.run_blocking(partial(self._has_room, directory)):
                directory.has_room_again()
                logger.warning("The disk of %s has space again", directory.path)
        full = [directory for directory in self._directories.online if directory.is_full]
        if full:
            self._give_up(full)
        else:
            self.given_up = frozenset()

    def _has_room(self, directory: LogDirectory) -> bool:
        """Blocking."""
        disk = self._env.disk
        try:
            needed = min(ROOM_BYTES, disk.total_bytes(directory.path) // ROOM_SHARE)
            return disk.free_bytes(directory.path) > needed
        except OSError:
            return False  # Whoever writes there finds out what is wrong.

    def _give_up(self, full: list[LogDirectory]) -> None:
        image = self._image()
        left = frozenset(
            (partition.topic_id, partition.topic_partition.partition)
            for partition in self._replicas.all()
            if any(partition.topic_partition in directory.logs for directory in full)
            and self._others_have_it(partition, image)
        )
        now = self._env.clock.monotonic()
        if self.given_up - left:
            self._hold_until = now + self._env.rng.random() * HOLD_SECONDS
        if now < self._hold_until:
            left &= self.given_up
        if left - self.given_up:
            paths = ", ".join(directory.path for directory in full)
            logger.error(
                "The disk of %s is full: %d partitions are left to other brokers until there is space",
                *(paths, len(left)),
            )
        self.given_up = left

    def _others_have_it(self, partition: Partition, image: MetadataImage) -> bool:
        """Whether another in-sync replica could lead now."""
        known = partition.image
        key = partition.topic_id, partition.topic_partition.partition
        own = self._replicas.broker_id
        return known is not None and any(
            other != own and other in image.brokers and key not in image.brokers[other].offline
            for other in known.isr
        )
